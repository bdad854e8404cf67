#include "parallel/cuda/door.h"

#include "core/device_cuda.h"
#include "parallel/cuda/link.h"
#include "parallel/cuda/ranges.h"

#define TRIAX_DOOR extern "C" __attribute__((visibility("default")))

TRIAX_DOOR triax::Device* triax_cuda_open_device(int ordinal, int host_threads) {
  return new triax::CudaDevice(ordinal, host_threads);
}

TRIAX_DOOR const triax::Kernels* triax_cuda_kernels() {
  return &triax::cuda_kernels();
}

TRIAX_DOOR const triax::ProfilerRanges* triax_cuda_ranges() {
  return &triax::nvtx_ranges();
}

TRIAX_DOOR triax::DeviceLink* triax_cuda_link() {
  return &triax::cuda_link();
}
