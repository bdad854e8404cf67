#pragma once

#include <string_view>

#include "core/device_cuda.h"
#include "core/error.h"
#include "kernels/cuda/device_code.h"

namespace triax::cuda {

/// The table's functions get a Device; those of this backend are called with a CudaDevice alone.
inline CudaDevice& cuda_device(Device& device) {
  check(device.kind() == DeviceKind::cuda, "a CUDA kernel on a device of kind {}", name_of(device.kind()));
  return static_cast<CudaDevice&>(device);
}

/// Lets `kernel` have `bytes` of dynamic shared memory where that is more than the 48 KiB that all may have.
void allow_shared(const char* name, const void* kernel, size_t bytes);

/// Enqueues kernel(args...) on the device's stream; a launch that the runtime refuses is a fault that names
/// it.
template <class... P, class... A>
void launch(const char* name, CudaDevice& device, void (*kernel)(P...), dim3 grid, dim3 block,
            size_t shared_bytes, A&&... args) {
  if (shared_bytes > 48 * 1024) allow_shared(name, reinterpret_cast<const void*>(kernel), shared_bytes);
  enqueue(name, kernel, grid, block, shared_bytes, device.stream(), static_cast<A&&>(args)...);
  device.check_launch(name);
  device.enqueued(name);
}

/// n / d, rounded up.
constexpr int64_t pieces(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

/// A number of blocks as the runtime wants it.
inline unsigned blocks(int64_t n) {
  check(n > 0 && n <= 0x7fffffff, "a launch of {} blocks", n);
  return static_cast<unsigned>(n);
}

}  // namespace triax::cuda
