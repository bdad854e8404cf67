#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <source_location>
#include <string_view>
#include <utility>

#include "core/cuda_choices.h"
#include "core/device.h"

namespace triax {

/// A fault that names `call`, what CUDA says and the place, unless `status` is success. Errors of kernels
/// that were enqueued before come out of any later call.
void check_cuda(cudaError_t status, std::string_view call,
                std::source_location place = std::source_location::current());

/// One GPU, or a share of it (several ranks, threads or processes, may have the same one). Only the CUDA
/// library includes this header; the program gets the device through the library's door
/// (parallel/cuda/door.h) and knows it as a Device.
///
/// All that is enqueued goes through one stream in order; kernels enqueue on stream(). Memory is plain
/// cudaMalloc. For one thread, the one that made it, of which it is the current device.
class CudaDevice final : public Device {
 public:
  /// GPU `ordinal` of those that are visible; `host_threads` as make_cpu_device().
  CudaDevice(int ordinal, int host_threads);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* allocate(size_t bytes, std::string_view purpose) override;
  void deallocate(void* block, size_t bytes) override;
  void* allocate_host(size_t bytes, std::string_view purpose) override;
  void deallocate_host(void* block, size_t bytes) override;
  void copy(void* destination, const void* source, size_t bytes) override;
  void copy_rows(void* destination, size_t destination_stride, const void* source, size_t source_stride,
                 size_t bytes, int64_t rows) override;
  void fill_zero(void* destination, size_t bytes) override;
  void write(void* destination, const void* host_source, size_t bytes) override;
  void read(void* host_destination, const void* source, size_t bytes) override;
  void synchronize() override;
  void write_later(void* destination, const void* host_source, size_t bytes) override;
  void read_later(void* host_destination, const void* source, size_t bytes) override;
  std::unique_ptr<DeviceEvent> make_event() override;
  /// Events on stream(); what waits for another stream's work lies between two marks like a kernel does.
  std::unique_ptr<DeviceClock> make_clock() override;
  std::optional<DeviceMemoryUse> memory_use() const override;
  /// Not where CUDA_LAUNCH_BLOCKING asks for one call after the other.
  bool captures() const override;
  /// Stream capture into a CUDA graph; in thread-local mode, so that other ranks' threads are not disturbed.
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& enqueue) override;
  ThreadPool& threads() override { return pool_; }

  /// Looks after what the rank has under way on other streams (messages), while the host waits for this one.
  class Watch {
   public:
    virtual ~Watch() = default;
    /// Whether anything is under way: else a wait is a plain one.
    virtual bool busy() = 0;
    /// Called again and again during a wait; may throw to end it.
    virtual void look() = 0;
    /// The wait is over, either way.
    virtual void over() noexcept = 0;
  };
  const std::shared_ptr<Watch>& watch() const { return watch_; }
  void set_watch(std::shared_ptr<Watch> watch) { watch_ = std::move(watch); }

  /// Returns when the event has been reached, or was never recorded; the watch looks after messages
  /// meanwhile. An error names `what`.
  void wait_for(cudaEvent_t event, std::string_view what);

  int ordinal() const { return ordinal_; }
  /// Notes that `kernel`, a literal, was enqueued: an error that comes out of a later call names the last
  /// ones. A graph is one of them.
  void enqueued(const char* kernel) { enqueued_[enqueued_count_++ % enqueued_.size()] = kernel; }
  /// check_cuda() with the kernels that were enqueued last.
  void check(cudaError_t status, std::string_view call,
             std::source_location place = std::source_location::current()) const;
  /// After the launch of `kernel`, before enqueued(): a fault names this kernel where the runtime refuses it,
  /// or, with CUDA_LAUNCH_BLOCKING, where it has failed; the fault of an earlier one, which may come out of
  /// any launch, names those that were enqueued last.
  void check_launch(const char* kernel, std::source_location place = std::source_location::current()) const;
  /// Where this rank's kernels and copies are enqueued.
  cudaStream_t stream() const { return stream_; }
  /// Device memory for a kernel's own use until its end: of the stream's calls only one uses it at a time.
  /// cuda_workspace_bytes, allocated when it is asked for the first time.
  void* workspace();
  /// What the kernels keep from call to call (a cuBLASLt handle, plans); goes before the stream does.
  std::shared_ptr<void>& extension() { return extension_; }

 private:
  // Page-locked memory that what write() was given waits in, used round and round.
  struct Staged {
    size_t begin, end;
    cudaEvent_t done;
  };
  char* stage(size_t bytes, cudaEvent_t& done);
  ThreadPool pool_;
  int ordinal_;
  cudaStream_t stream_ = nullptr;
  void* workspace_ = nullptr;
  size_t allocated_ = 0, most_ = 0;  // as DeviceMemoryUse
  char* staging_ = nullptr;
  size_t staging_at_ = 0;
  std::deque<Staged> staged_;
  std::shared_ptr<void> extension_;
  std::array<const char*, 8> enqueued_{};
  size_t enqueued_count_ = 0;
  std::shared_ptr<Watch> watch_;
};

/// Asks `query` until it says something else than cudaErrorNotReady, and the device's watch meanwhile.
cudaError_t wait_watched(CudaDevice::Watch& watch, const std::function<cudaError_t()>& query);

}  // namespace triax
