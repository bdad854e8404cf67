// Streams and events: see stream.h.

#include "stream.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "errors.h"
#include "include/cuda_runtime.h"
#include "streams.h"

namespace {

/// A point in a stream.
struct Point {
  std::mutex mutex;
  std::condition_variable reached_now;
  bool reached = false;
  std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();

  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    when = std::chrono::steady_clock::now();
    reached_now.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    reached_now.wait(lock, [this] { return reached; });
  }
};

class Stream final : public CUstream_st {
 public:
  ~Stream() override {
    wait();
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void run(std::function<void()> work) {
    if (idle())
      work();
    else
      defer(std::move(work));
  }
  void defer(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) thread_ = std::thread([this] { work_off(); });
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return queue_.empty();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
  }

 private:
  void work_off() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()>& first = queue_.front();  // stays there until it is done
      lock.unlock();
      first();
      lock.lock();
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

struct Streams {
  std::mutex mutex;
  std::vector<Stream*> all;
};
Streams& streams() {
  static Streams* all = new Streams;  // threads may outlive the library's statics
  return *all;
}

Stream& of(cudaStream_t stream) {
  static Stream* null_stream = new Stream;
  return stream ? *static_cast<Stream*>(stream) : *null_stream;
}

}  // namespace

struct CUevent_st {
  std::shared_ptr<Point> point;
};

namespace emulated_cuda {

void run_on(cudaStream_t stream, std::function<void()> work) {
  of(stream).run(std::move(work));
}
void wait_for_all() {
  std::vector<Stream*> all;
  {
    const std::lock_guard lock(streams().mutex);
    all = streams().all;
  }
  for (Stream* stream : all) stream->wait();
}

}  // namespace emulated_cuda

using emulated_cuda::called;
using emulated_cuda::called_outside_of_captures;
using emulated_cuda::enqueue;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  called(__func__);
  auto* made = new Stream;
  const std::lock_guard lock(streams().mutex);
  streams().all.push_back(made);
  *stream = made;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  called(__func__);
  {
    const std::lock_guard lock(streams().mutex);
    std::erase(streams().all, static_cast<Stream*>(stream));
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  of(stream).wait();
  return emulated_cuda::fault();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  if (const cudaError_t fault = emulated_cuda::fault()) return fault;
  return of(stream).idle() ? cudaSuccess : emulated_cuda::failed(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  called(__func__);
  if (emulated_cuda::capturing(stream))
    return enqueue(stream, [point = event->point] {
      if (point) point->wait();
    });
  if (event->point && !event->point->is_reached())
    of(stream).defer([point = event->point] { point->wait(); });
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  emulated_cuda::wait_for_all();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  called(__func__);
  return enqueue(stream, [=] { function(data); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  called(__func__);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  called(__func__);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  called(__func__);
  // In a graph it is an edge, and the event may be gone when that is launched.
  if (emulated_cuda::capturing(stream)) return enqueue(stream, [] {});
  event->point = std::make_shared<Point>();
  return enqueue(stream, [point = event->point] { point->reach(); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  if (event->point) event->point->wait();
  return emulated_cuda::fault();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  if (const cudaError_t fault = emulated_cuda::fault()) return fault;
  return !event->point || event->point->is_reached() ? cudaSuccess : emulated_cuda::failed(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  cudaEventSynchronize(begin);
  cudaEventSynchronize(end);
  *milliseconds = std::chrono::duration<float, std::milli>(end->point->when - begin->point->when).count();
  return cudaSuccess;
}
