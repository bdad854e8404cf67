// lib/triax_cuda_foreign.so: a "GPU" for tests of everything but its kernels. It answers to the door of the
// CUDA library (parallel/cuda/door.h, TRIAX_CUDA_LIBRARY), computes with the CPU's kernels, so that results
// have the CPU's bits, and its memory can be touched by nobody else: pages are open only while a kernel or a
// copy of it runs, and whoever follows a pointer from the host ends the process. A pointer of the wrong side
// in a copy is a fault that says so. (Pages are the process's: with several ranks as threads, one rank's
// kernel opens them for all.)

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/reduce.h"
#include "core/error.h"
#include "kernels/cuda/about.h"
#include "parallel/cuda/door.h"

namespace triax {

namespace {

constexpr size_t kRegion = size_t{64} << 30, kPage = 4096;

/// All devices' memory: addresses that are reserved, and opened while somebody computes.
class Memory {
 public:
  static Memory& get() {
    static Memory memory;
    return memory;
  }
  char* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = (bytes + kPage - 1) / kPage * kPage + kPage;  // with a page that is nobody's
    check(used_ + size <= kRegion, "the foreign device's {} bytes are used up", kRegion);
    char* block = base_ + used_;
    used_ += size;
    if (open_) set(PROT_READ | PROT_WRITE);
    return block;
  }
  void give(char* block, size_t bytes) { madvise(block, bytes, MADV_DONTNEED); }
  bool holds(const void* p) const { return p >= base_ && p < base_ + kRegion; }
  void open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) set(PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) set(PROT_NONE);
  }

 private:
  Memory()
      : base_(static_cast<char*>(
            mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    check(base_ != MAP_FAILED, "no addresses for the foreign device");
  }
  void set(int protection) {
    if (used_) check(mprotect(base_, used_, protection) == 0, "mprotect: {}", std::strerror(errno));
  }
  char* base_;
  std::mutex mutex_;
  size_t used_ = 0;
  int open_ = 0;
};

struct Open {
  Open() { Memory::get().open(); }
  ~Open() { Memory::get().close(); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

/// What a device was given, done in order by a thread of its own, with pauses here and there: whoever does
/// not wait where a GPU's stream or its host would have to, computes with what is not there yet.
class Queue {
 public:
  Queue() : worker_([this] { work(); }) {}
  ~Queue() {
    push(nullptr);
    worker_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  /// Until all is done; throws what a task has thrown.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty(); });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void work() {
    for (unsigned n = 1;; ++n) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const auto task = tasks_.front();
      lock.unlock();
      if (!task) return;
      if (n * 2654435761U >> 28 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
      try {
        task();
      } catch (...) {
        lock.lock();
        if (!error_) error_ = std::current_exception();
        lock.unlock();
      }
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::exception_ptr error_;
  std::thread worker_;  // last: it uses the others
};

/// A point in a queue.
struct Mark {
  // A replayed call reaches again what it has reached: of one queue, in order, that is nobody's wait.
  void reach() {
    if (!std::exchange(is_reached, true)) promise.set_value();
  }
  bool is_reached = false;
  std::promise<void> promise;
  std::shared_future<void> reached{promise.get_future()};
};

class ForeignDevice final : public Device {
 public:
  explicit ForeignDevice(int threads) : host_threads_(threads), cpu_(make_cpu_device(threads)) {
    if (std::getenv("TRIAX_FOREIGN_ASYNC")) queue_ = std::make_unique<Queue>();
  }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* allocate(size_t bytes, std::string_view purpose) override {
    check(!recorded_, "memory for {} while calls are recorded", purpose);
    if (bytes == 0) return nullptr;
    use_.allocated += bytes;
    use_.most = std::max(use_.most, use_.allocated);
    return Memory::get().take(bytes);
  }
  void deallocate(void* block, size_t bytes) override {
    use_.allocated -= bytes;
    if (queue_) queue_->push([=] { Memory::get().give(static_cast<char*>(block), bytes); });
  }
  void* allocate_host(size_t bytes, std::string_view purpose) override {
    return cpu_->allocate(bytes, purpose);
  }
  void deallocate_host(void* block, size_t bytes) override { cpu_->deallocate(block, bytes); }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    own(to), own(from);
    run([=] { std::memmove(to, from, bytes); });
  }
  void copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes,
                 int64_t rows) override {
    own(to), own(from);
    run([=, this] { cpu_->copy_rows(to, to_stride, from, from_stride, bytes, rows); });
  }
  void fill_zero(void* to, size_t bytes) override {
    if (bytes == 0) return;
    own(to);
    run([=] { std::memset(to, 0, bytes); });
  }
  void write(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    check(!recorded_, "a write of the host's while calls are recorded");
    own(to), foreign(from);
    const auto* source = static_cast<const char*>(from);
    run([to, content = std::vector<char>(source, source + bytes)] {
      std::memcpy(to, content.data(), content.size());
    });
  }
  void read(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    foreign(to), own(from);
    run([=] { std::memcpy(to, from, bytes); });
    synchronize();
  }
  void synchronize() override {
    check(!recorded_, "the host waits for the foreign device while calls are recorded");
    if (queue_) queue_->drain();
  }
  void write_later(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    own(to), foreign(from);
    run([=] { std::memcpy(to, from, bytes); });
  }
  void read_later(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    foreign(to), own(from);
    run([=] { std::memcpy(to, from, bytes); });
  }
  std::unique_ptr<DeviceEvent> make_event() override;
  std::unique_ptr<DeviceClock> make_clock() override;
  std::optional<DeviceMemoryUse> memory_use() const override { return use_; }
  bool captures() const override { return true; }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& enqueue) override;
  ThreadPool& threads() override { return host_threads_; }
  Device& cpu() { return *cpu_; }
  /// `task` in its turn, with the memory open.
  void run(std::function<void()> task) {
    in_turn([task = std::move(task)] {
      const Open open;
      task();
    });
  }
  void in_turn(std::function<void()> task) {
    if (recorded_)
      recorded_->push_back(std::move(task));
    else if (queue_)
      queue_->push(std::move(task));
    else
      task();
  }

 private:
  static void own(const void* p) { check(Memory::get().holds(p), "{} is not in the device's memory", p); }
  static void foreign(const void* p) { check(!Memory::get().holds(p), "{} is not in the host's memory", p); }
  ThreadPool host_threads_;
  std::unique_ptr<Device> cpu_;
  std::unique_ptr<Queue> queue_;  // null: everything is done at once, and the host alone runs then
  std::vector<std::function<void()>>* recorded_ = nullptr;  // during capture()
  DeviceMemoryUse use_;
};

class ForeignEvent final : public DeviceEvent {
 public:
  explicit ForeignEvent(ForeignDevice& device) : device_(&device) {}
  void record() override {
    mark_ = std::make_shared<Mark>();
    device_->in_turn([mark = mark_] { mark->reach(); });
  }
  void wait() override {
    if (mark_) mark_->reached.wait();
  }

 private:
  ForeignDevice* device_;
  std::shared_ptr<Mark> mark_;
};

class ForeignClock final : public DeviceClock {
 public:
  explicit ForeignClock(ForeignDevice& device) : device_(&device) {}
  int mark() override {
    const auto moment = std::make_shared<std::promise<Moment>>();
    marks_.push_back(moment->get_future());
    device_->in_turn([moment] { moment->set_value(std::chrono::steady_clock::now()); });
    return static_cast<int>(marks_.size()) - 1;
  }
  double seconds(int from, int to) override {
    const auto at = [&](int mark) { return marks_.at(static_cast<size_t>(mark)).get(); };
    return std::chrono::duration<double>(at(to) - at(from)).count();
  }
  void restart() override { marks_.clear(); }

 private:
  using Moment = std::chrono::steady_clock::time_point;
  ForeignDevice* device_;
  std::vector<std::shared_future<Moment>> marks_;
};

class ForeignGraph final : public DeviceGraph {
 public:
  ForeignGraph(ForeignDevice& device, std::vector<std::function<void()>> calls)
      : device_(&device), calls_(std::move(calls)) {}
  void launch() override {
    for (const auto& call : calls_) device_->in_turn(call);
  }

 private:
  ForeignDevice* device_;
  std::vector<std::function<void()>> calls_;
};

std::unique_ptr<DeviceEvent> ForeignDevice::make_event() {
  return std::make_unique<ForeignEvent>(*this);
}

std::unique_ptr<DeviceClock> ForeignDevice::make_clock() {
  return std::make_unique<ForeignClock>(*this);
}

std::unique_ptr<DeviceGraph> ForeignDevice::capture(const std::function<void()>& enqueue) {
  std::vector<std::function<void()>> calls;
  recorded_ = &calls;
  try {
    enqueue();
  } catch (...) {
    recorded_ = nullptr;
    throw;
  }
  recorded_ = nullptr;
  return std::make_unique<ForeignGraph>(*this, std::move(calls));
}

/// A kernel of the CPU while the memory is open.
template <auto kernel>
struct Run;
template <class Op, Kernel<Op> Kernels::*kernel>
struct Run<kernel> {
  static void run(Device& device, const Op& op) {
    auto& foreign = static_cast<ForeignDevice&>(device);
    foreign.run([op, cpu = &foreign.cpu()] { (cpu_kernels().*kernel)(*cpu, op); });
  }
};

class ForeignLink final : public DeviceLink {
 public:
  Event record(Device& device) override {
    auto mark = std::make_shared<Mark>();
    static_cast<ForeignDevice&>(device).in_turn([mark] { mark->reach(); });
    return mark;
  }
  void wait(Device& device, const Event& event) override {
    if (!event) return;
    const auto mark = std::static_pointer_cast<Mark>(event);
    static_cast<ForeignDevice&>(device).in_turn([mark] { mark->reached.wait(); });
  }
  void reduce(Device& device, DType dtype, ReduceOp op, const std::vector<const void*>& inputs, int64_t count,
              const std::vector<void*>& outputs) override {
    static_cast<ForeignDevice&>(device).run([=] {
      const size_t width = size_of(dtype);
      for (int64_t at = 0; at < count; at += reduce_piece_elements) {
        const int64_t n = std::min(reduce_piece_elements, count - at);
        const size_t offset = static_cast<size_t>(at) * width, bytes = static_cast<size_t>(n) * width;
        std::vector<const void*> from;
        for (const void* input : inputs) from.push_back(static_cast<const char*>(input) + offset);
        char result[reduce_piece_elements * sizeof(double)];
        reduce_piece(dtype, op, from.data(), static_cast<int>(from.size()), n, result);
        for (void* output : outputs) std::memcpy(static_cast<char*>(output) + offset, result, bytes);
      }
    });
  }
};

}  // namespace
}  // namespace triax

using triax::Kernels;

extern "C" {

const char* triax_cuda_about(TriaxCudaAbout* about) {
  *about = {13000, 130000, 1, 13000, 1};
  return nullptr;
}

triax::Device* triax_cuda_open_device(int, int host_threads) {
  return new triax::ForeignDevice(host_threads);
}

const Kernels* triax_cuda_kernels() {
  using triax::Run;
#define TRIAX_FOREIGN(name) .name = Run<&Kernels::name>::run
  static const Kernels table{.name = "foreign",
                             TRIAX_FOREIGN(gemm),
                             TRIAX_FOREIGN(residual_add),
                             TRIAX_FOREIGN(norm_forward),
                             TRIAX_FOREIGN(norm_backward_input),
                             TRIAX_FOREIGN(norm_backward_weight),
                             TRIAX_FOREIGN(attention_forward),
                             TRIAX_FOREIGN(attention_backward),
                             TRIAX_FOREIGN(attention_cached),
                             TRIAX_FOREIGN(rope),
                             TRIAX_FOREIGN(embedding_forward),
                             TRIAX_FOREIGN(embedding_backward),
                             TRIAX_FOREIGN(position_forward),
                             TRIAX_FOREIGN(position_backward),
                             TRIAX_FOREIGN(dropout),
                             TRIAX_FOREIGN(bias_gelu_forward),
                             TRIAX_FOREIGN(bias_gelu_backward),
                             TRIAX_FOREIGN(swiglu_forward),
                             TRIAX_FOREIGN(swiglu_backward),
                             TRIAX_FOREIGN(cross_entropy_max),
                             TRIAX_FOREIGN(cross_entropy_sum),
                             TRIAX_FOREIGN(cross_entropy_backward),
                             TRIAX_FOREIGN(cross_entropy_loss),
                             TRIAX_FOREIGN(bias_backward),
                             TRIAX_FOREIGN(adamw),
                             TRIAX_FOREIGN(squared_norm),
                             TRIAX_FOREIGN(normalise_sums),
                             TRIAX_FOREIGN(decide_update),
                             TRIAX_FOREIGN(add),
                             TRIAX_FOREIGN(cast),
                             TRIAX_FOREIGN(find_non_finite)};
#undef TRIAX_FOREIGN
  return &table;
}

const triax::ProfilerRanges* triax_cuda_ranges() {
  return nullptr;  // no profiler
}

triax::DeviceLink* triax_cuda_link() {
  static triax::ForeignLink link;
  return &link;
}

}  // extern "C"
