#include "kernels/cuda/launch.h"

namespace triax::cuda {

void allow_shared(const char* name, const void* kernel, size_t bytes) {
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  check(status == cudaSuccess, "CUDA gives the kernel {} no {} bytes of shared memory per block: {}", name,
        bytes, cudaGetErrorString(status));
}

}  // namespace triax::cuda
