// The runtime's calls on memory of the host.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "errors.h"
#include "include/cuda_runtime.h"
#include "streams.h"

using emulated_cuda::called;
using emulated_cuda::called_outside_of_captures;
using emulated_cuda::enqueue;
using emulated_cuda::failed;

namespace {

thread_local cudaError_t t_last = cudaSuccess;
thread_local int t_device = 0;
constexpr size_t kSharedOptin = 227 * 1024;  // of compute capability 9.0
constexpr size_t kSharedDefault = 48 * 1024;
constexpr size_t kTotal = size_t{80} << 30;

// Each has a name and a place of its own, and all work on the host's memory.
int devices() {
  const char* number = std::getenv("TRIAX_EMULATED_GPUS");
  return number && *number ? std::atoi(number) : 1;
}

// The newest CUDA that the driver knows.
int driver() {
  const char* version = std::getenv("TRIAX_EMULATED_DRIVER");
  return version && *version ? std::atoi(version) : 13000;
}

std::mutex fault_mutex;
std::string failing;  // the kernel that fails when it runs
std::atomic<cudaError_t> sticky = cudaSuccess;

// Page-locked memory of the host.
std::mutex locked_mutex;
std::map<const char*, size_t> locked;

bool page_locked(const void* pointer) {
  const std::lock_guard lock(locked_mutex);
  const auto* at = static_cast<const char*>(pointer);
  auto after = locked.upper_bound(at);
  return after != locked.begin() && at < std::prev(after)->first + std::prev(after)->second;
}

struct Attributes {
  std::mutex mutex;
  std::map<const void*, size_t> shared;
};
Attributes& attributes() {
  static Attributes all;
  return all;
}

/// What cudaMalloc has handed out.
class Blocks {
 public:
  void add(const void* block, size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[block] = bytes;
    taken_ += bytes;
  }
  void remove(const void* block) {
    const std::lock_guard lock(mutex_);
    if (const auto found = sizes_.find(block); found != sizes_.end()) {
      taken_ -= found->second;
      sizes_.erase(found);
    }
  }
  size_t taken() {
    const std::lock_guard lock(mutex_);
    return taken_;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, size_t> sizes_;
  size_t taken_ = 0;
};
Blocks& blocks() {
  static auto* all = new Blocks;  // threads may outlive the library's statics
  return *all;
}

/// New memory is NaN, whichever way it is read: on a GPU nobody clears it.
cudaError_t allocate(void** pointer, size_t bytes) {
  *pointer = bytes ? std::aligned_alloc(512, (bytes + 511) / 512 * 512) : nullptr;
  if (bytes && !*pointer) return failed(cudaErrorMemoryAllocation);
  if (bytes) std::memset(*pointer, 0xFF, bytes);
  return cudaSuccess;
}

cudaError_t allocate_locked(void** pointer, size_t bytes) {
  const cudaError_t error = allocate(pointer, bytes);
  const std::lock_guard lock(locked_mutex);
  if (!error && bytes) locked[static_cast<const char*>(*pointer)] = bytes;
  return error;
}

}  // namespace

namespace emulated_cuda {

cudaError_t failed(cudaError_t error) {
  t_last = error;
  return error;
}

cudaError_t fault() {
  const cudaError_t error = sticky.load();
  return error == cudaSuccess ? error : failed(error);
}

void ran(const char* name) {
  const std::lock_guard lock(fault_mutex);
  if (failing != name) return;
  failing.clear();
  sticky = cudaErrorIllegalAddress;
  // There the launch itself tells it.
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking && *blocking == '1') failed(cudaErrorIllegalAddress);
}

cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes) {
  called("kernel");
  if (const cudaError_t error = fault()) return error;
  const size_t threads = size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return failed(cudaErrorInvalidConfiguration);
  size_t most = kSharedDefault;
  {
    const std::lock_guard lock(attributes().mutex);
    const auto found = attributes().shared.find(kernel);
    if (found != attributes().shared.end()) most = found->second;
  }
  return shared_bytes > most ? failed(cudaErrorInvalidValue) : cudaSuccess;
}

}  // namespace emulated_cuda

/// The kernel that is launched as `name` fails when it runs next, of which every later call tells, as those
/// of a GPU do whose context is lost; null: that of before is forgotten.
extern "C" void emulated_cuda_fail_kernel(const char* name) {
  const std::lock_guard lock(fault_mutex);
  failing = name ? name : "";
  sticky = cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalState:
      return "the operation cannot be performed in the present state";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return "unknown error";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}
cudaError_t cudaGetLastError() {
  const cudaError_t last = t_last;
  t_last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() {
  return t_last;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (driver() < 13000) return failed(cudaErrorInsufficientDriver);
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return failed(cudaErrorInvalidDevice);
  t_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices()) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "emulated");
  std::memset(properties->uuid.bytes, device + 1, sizeof properties->uuid.bytes);
  properties->pciBusID = device;
  properties->totalGlobalMem = kTotal;
  properties->sharedMemPerBlock = kSharedDefault;
  properties->sharedMemPerBlockOptin = kSharedOptin;
  properties->sharedMemPerMultiprocessor = 228 * 1024;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= devices()) return failed(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kSharedOptin);
      return cudaSuccess;
  }
  return failed(cudaErrorInvalidValue);
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  const cudaError_t status = allocate(pointer, bytes);
  if (status == cudaSuccess) blocks().add(*pointer, bytes);
  return status;
}
cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  emulated_cuda::wait_for_all();
  blocks().remove(pointer);
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  return allocate_locked(pointer, bytes);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  return allocate_locked(pointer, bytes);
}
cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  {
    const std::lock_guard lock(locked_mutex);
    locked.erase(static_cast<const char*>(pointer));
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void*) {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = kTotal;
  *free = kTotal - blocks().taken();
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  emulated_cuda::wait_for_all();
  if (bytes) std::memmove(to, from, bytes);
  return cudaSuccess;
}
// The host's memory that is not page-locked makes this call wait until the copy is done ("API synchronization
// behavior" of the runtime's manual).
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  called(__func__);
  const cudaError_t error = enqueue(stream, [=] {
    if (bytes) std::memmove(to, from, bytes);
  });
  const bool waits = (kind == cudaMemcpyDeviceToHost && !page_locked(to)) ||
                     (kind == cudaMemcpyHostToDevice && !page_locked(from));
  return error || !waits || emulated_cuda::capturing(stream) ? error : cudaStreamSynchronize(stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  called(__func__);
  if (width > to_pitch || width > from_pitch) return failed(cudaErrorInvalidValue);
  return enqueue(stream, [=] {
    for (size_t row = 0; row < height; ++row)
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                   width);
  });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const cudaError_t refused = called_outside_of_captures(__func__)) return refused;
  if (bytes) std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  called(__func__);
  return enqueue(stream, [=] {
    if (bytes) std::memset(to, value, bytes);
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > kSharedOptin) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(attributes().mutex);
  attributes().shared[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
