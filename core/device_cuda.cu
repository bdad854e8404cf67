#include "core/device_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

namespace triax {

namespace {

constexpr size_t kStaging = size_t{8} << 20, kStagingPiece = kStaging / 4;

// Destructors can't throw, and after a fault every call fails: the fault itself has been told.
void ignore(cudaError_t) {}

// What a kernel, or the memory under it, does while it runs. It stays, and comes out of whatever is called
// next.
bool of_a_running_kernel(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check_cuda(cudaError_t status, std::string_view call, std::source_location place) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw Error(
      ErrorKind::fault,
      fmt::format("{}: CUDA says {} ({}). If the call itself is in order, a kernel that was enqueued "
                  "before it has failed: run again with CUDA_LAUNCH_BLOCKING=1, where the kernel's own "
                  "launch tells it, or under compute-sanitizer, to find which",
                  call, cudaGetErrorString(status), cudaGetErrorName(status)),
      place);
}

void CudaDevice::check(cudaError_t status, std::string_view call, std::source_location place) const {
  if (status == cudaSuccess) [[likely]]
    return;
  std::string last;
  const size_t known = std::min(enqueued_count_, enqueued_.size());
  for (size_t i = enqueued_count_ - known; i < enqueued_count_; ++i)
    last += fmt::format("{}{}", last.empty() ? "" : ", ", enqueued_[i % enqueued_.size()]);
  check_cuda(status, last.empty() ? std::string(call) : fmt::format("{} (enqueued last: {})", call, last),
             place);
}

void CudaDevice::check_launch(const char* kernel, std::source_location place) const {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) [[likely]]
    return;
  if (!of_a_running_kernel(status))
    throw Error(ErrorKind::fault,
                fmt::format("CUDA refuses the kernel {}: {} ({})", kernel, cudaGetErrorString(status),
                            cudaGetErrorName(status)),
                place);
  if (cuda_launch_blocking())
    throw Error(ErrorKind::fault,
                fmt::format("the kernel {} has failed: CUDA says {} ({}); compute-sanitizer shows where",
                            kernel, cudaGetErrorString(status), cudaGetErrorName(status)),
                place);
  check(status, fmt::format("the launch of {}", kernel), place);
}

CudaDevice::CudaDevice(int ordinal, int host_threads) : pool_(host_threads), ordinal_(ordinal) {
  check_cuda(cudaSetDevice(ordinal), fmt::format("cudaSetDevice({})", ordinal));
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  // The least of priorities: communication, on streams of its own, gets through beside it.
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, least),
             fmt::format("the stream of GPU {}", ordinal));
}

CudaDevice::~CudaDevice() {
  ignore(cudaStreamSynchronize(stream_));
  extension_.reset();
  for (const Staged& s : staged_) ignore(cudaEventDestroy(s.done));
  ignore(cudaFree(workspace_));
  ignore(cudaFreeHost(staging_));
  ignore(cudaStreamDestroy(stream_));
}

void* CudaDevice::allocate(size_t bytes, std::string_view purpose) {
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told here, and is not the next call's
    size_t free = 0, total = 0;
    ignore(cudaMemGetInfo(&free, &total));
    fail(
        "GPU {} has no memory for {} ({} bytes): {} of its {} bytes are free; use more ranks, a smaller "
        "micro_batch_size or recomputation (`triax plan` says what a job takes, nvidia-smi who else is "
        "there)",
        ordinal_, purpose, bytes, free, total);
  }
  check(status, fmt::format("cudaMalloc of {} bytes for {}", bytes, purpose));
  check(cudaMemsetAsync(block, 0, bytes, stream_), fmt::format("clearing {}", purpose));
  allocated_ += bytes;
  most_ = std::max(most_, allocated_);
  return block;
}

void CudaDevice::deallocate(void* block, size_t bytes) {
  ignore(cudaFree(block));  // waits for what is enqueued
  if (block) allocated_ -= bytes;
}

std::optional<DeviceMemoryUse> CudaDevice::memory_use() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return DeviceMemoryUse{allocated_, most_, total - free, total};
}

void* CudaDevice::allocate_host(size_t bytes, std::string_view purpose) {
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  const cudaError_t status = cudaMallocHost(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(
        "no page-locked host memory for {} ({} bytes); fewer ranks on this host, or a higher limit of the "
        "container or the batch system, would do",
        purpose, bytes);
  }
  check(status, fmt::format("cudaMallocHost of {} bytes for {}", bytes, purpose));
  std::memset(block, 0, bytes);
  return block;
}

void CudaDevice::deallocate_host(void* block, size_t) {
  ignore(cudaFreeHost(block));
}

void CudaDevice::copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || destination == source) return;
  check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream_),
        "a copy within the GPU's memory");
}

void CudaDevice::copy_rows(void* destination, size_t destination_stride, const void* source,
                           size_t source_stride, size_t bytes, int64_t rows) {
  if (bytes == 0 || rows == 0) return;
  check(cudaMemcpy2DAsync(destination, destination_stride, source, source_stride, bytes,
                          static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream_),
        "a copy of rows within the GPU's memory");
}

void CudaDevice::fill_zero(void* destination, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(destination, 0, bytes, stream_), "clearing the GPU's memory");
}

// A piece of the ring of at most kStagingPiece bytes whose last use is over.
char* CudaDevice::stage(size_t bytes, cudaEvent_t& done) {
  if (!staging_) staging_ = static_cast<char*>(allocate_host(kStaging, "staging"));
  if (staging_at_ + bytes > kStaging) staging_at_ = 0;
  const size_t begin = staging_at_, end = begin + bytes;
  done = nullptr;
  while (!staged_.empty()) {
    const Staged oldest = staged_.front();
    const bool overlaps = oldest.begin < end && begin < oldest.end;
    if (!overlaps) {
      const bool later_one = std::any_of(staged_.begin(), staged_.end(),
                                         [&](const Staged& s) { return s.begin < end && begin < s.end; });
      if (!later_one) break;
    }
    wait_for(oldest.done, "waiting for staged memory");
    staged_.pop_front();
    if (done) check(cudaEventDestroy(done), "cudaEventDestroy");
    done = oldest.done;
  }
  if (!done) check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
  staging_at_ = (end + 15) / 16 * 16;
  return staging_ + begin;
}

void CudaDevice::write(void* destination, const void* host_source, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const size_t n = std::min(bytes - at, kStagingPiece);
    cudaEvent_t done;
    char* piece = stage(n, done);
    std::memcpy(piece, static_cast<const char*>(host_source) + at, n);
    check(cudaMemcpyAsync(static_cast<char*>(destination) + at, piece, n, cudaMemcpyHostToDevice, stream_),
          "a copy to the GPU's memory");
    check(cudaEventRecord(done, stream_), "cudaEventRecord");
    const auto begin = static_cast<size_t>(piece - staging_);
    staged_.push_back({begin, begin + n, done});
    at += n;
  }
}

void CudaDevice::read(void* host_destination, const void* source, size_t bytes) {
  // A copy to memory that is not page-locked would wait within CUDA, where nobody looks after messages.
  if (watch_ && watch_->busy()) synchronize();
  if (bytes)
    check(cudaMemcpyAsync(host_destination, source, bytes, cudaMemcpyDeviceToHost, stream_),
          "a copy from the GPU's memory");
  synchronize();
}

cudaError_t wait_watched(CudaDevice::Watch& watch, const std::function<cudaError_t()>& query) {
  struct Over {
    CudaDevice::Watch& watch;
    ~Over() { watch.over(); }
  } const over{watch};
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t status = query();
    if (status == cudaSuccess) watch.look();  // what has ended with it
    if (status != cudaErrorNotReady) return status;
    cudaGetLastError();  // "not ready" is no error, and is not to be the next kernel's
    watch.look();
    // Most waits are short; a long one leaves the processor to others.
    if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(2))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void CudaDevice::synchronize() {
  const cudaError_t status = watch_ && watch_->busy()
                                 ? wait_watched(*watch_, [this] { return cudaStreamQuery(stream_); })
                                 : cudaStreamSynchronize(stream_);
  check(status, fmt::format("waiting for GPU {}", ordinal_));
}

void CudaDevice::write_later(void* destination, const void* host_source, size_t bytes) {
  if (bytes)
    check(cudaMemcpyAsync(destination, host_source, bytes, cudaMemcpyHostToDevice, stream_),
          "a copy to the GPU's memory");
}

void CudaDevice::read_later(void* host_destination, const void* source, size_t bytes) {
  if (bytes)
    check(cudaMemcpyAsync(host_destination, source, bytes, cudaMemcpyDeviceToHost, stream_),
          "a copy from the GPU's memory");
}

// An event that was never recorded has been reached.
void CudaDevice::wait_for(cudaEvent_t event, std::string_view what) {
  if (cudaEventQuery(event) == cudaSuccess) return;
  cudaGetLastError();  // "not ready" is no error, and is not to be the next call's
  check(watch_ && watch_->busy() ? wait_watched(*watch_, [&] { return cudaEventQuery(event); })
                                 : cudaEventSynchronize(event),
        what);
}

namespace {

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(CudaDevice& device) : device_(&device) {
    device_->check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~CudaEvent() override { ignore(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record() override { device_->check(cudaEventRecord(event_, device_->stream()), "cudaEventRecord"); }
  void wait() override { device_->wait_for(event_, "waiting for the end of a step or a copy"); }

 private:
  CudaDevice* device_;
  cudaEvent_t event_ = nullptr;
};

class CudaClock final : public DeviceClock {
 public:
  explicit CudaClock(CudaDevice& device) : device_(&device) {}
  ~CudaClock() override {
    for (cudaEvent_t event : events_) ignore(cudaEventDestroy(event));
  }
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  int mark() override {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      device_->check(cudaEventCreate(&event), "cudaEventCreate");
      events_.push_back(event);
    }
    device_->check(cudaEventRecord(events_[used_], device_->stream()), "cudaEventRecord");
    return static_cast<int>(used_++);
  }
  double seconds(int from, int to) override {
    device_->check(cudaEventSynchronize(events_.at(static_cast<size_t>(to))), "waiting for a moment");
    float milliseconds = 0;
    device_->check(cudaEventElapsedTime(&milliseconds, events_.at(static_cast<size_t>(from)),
                                        events_.at(static_cast<size_t>(to))),
                   "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }
  void restart() override { used_ = 0; }

 private:
  CudaDevice* device_;
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(cudaGraph_t graph, CudaDevice& device) : device_(&device) {
    // A refusal is told here: the next call's error is not to be this one.
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    if (status != cudaSuccess) cudaGetLastError();
    device_->check(status, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { ignore(cudaGraphExecDestroy(executable_)); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch() override {
    device_->check(cudaGraphLaunch(executable_, device_->stream()), "cudaGraphLaunch");
    device_->enqueued("all kernels of a step's graph (training.cuda_graph: off enqueues them one by one)");
  }

 private:
  CudaDevice* device_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceEvent> CudaDevice::make_event() {
  return std::make_unique<CudaEvent>(*this);
}

std::unique_ptr<DeviceClock> CudaDevice::make_clock() {
  return std::make_unique<CudaClock>(*this);
}

bool CudaDevice::captures() const {
  return !cuda_launch_blocking();
}

std::unique_ptr<DeviceGraph> CudaDevice::capture(const std::function<void()>& enqueue) {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    ignore(cudaStreamEndCapture(stream_, &graph));
    if (graph) ignore(cudaGraphDestroy(graph));
    cudaGetLastError();  // what broke the capture is on its way already
    throw;
  }
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  if (ended != cudaSuccess) cudaGetLastError();  // told here; what is enqueued instead is not to fail of it
  check(ended, "cudaStreamEndCapture");
  struct Destroy {
    void operator()(cudaGraph_t g) const { ignore(cudaGraphDestroy(g)); }
  };
  const std::unique_ptr<CUgraph_st, Destroy> owned(graph);
  return std::make_unique<CudaGraph>(graph, *this);
}

void* CudaDevice::workspace() {
  if (!workspace_) workspace_ = allocate(cuda_workspace_bytes, "the kernels' workspace");
  return workspace_;
}

}  // namespace triax
