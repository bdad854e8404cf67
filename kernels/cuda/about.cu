#include "kernels/cuda/about.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

const char* triax_cuda_about(TriaxCudaAbout* about) {
  *about = {};
  about->cublaslt = static_cast<int>(cublasLtGetVersion());
  if (ncclGetVersion(&about->nccl) != ncclSuccess) about->nccl = 0;
  cudaError_t status = cudaRuntimeGetVersion(&about->runtime);
  if (status == cudaSuccess) status = cudaDriverGetVersion(&about->driver);
  // Without a driver the count is an error and the argument stays as it was.
  int devices = 0;
  if (status == cudaSuccess) status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  about->devices = devices;
  return devices > 0 ? nullptr : "no GPU";
}
