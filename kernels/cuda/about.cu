#include "kernels/cuda/about.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <exception>
#include <string>

#include "kernels/cuda/attention.h"

const char* triax_cuda_check_cudnn() {
#ifdef TRIAX_CUDNN
  static thread_local std::string words;
  void* library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library) return "no cuDNN";
  dlclose(library);
  try {
    triax::cuda::check_cudnn_graphs();
    return nullptr;
  } catch (const std::exception& e) {
    words = e.what();
    return words.c_str();
  }
#else
  return "no cuDNN";
#endif
}

const char* triax_cuda_about(TriaxCudaAbout* about) {
  *about = {};
  about->cublaslt = static_cast<int>(cublasLtGetVersion());
#ifdef TRIAX_CUDNN
  about->cudnn = 1;
#endif
  cudaError_t status = cudaRuntimeGetVersion(&about->runtime);
  if (status == cudaSuccess) status = cudaDriverGetVersion(&about->driver);
  // Without a driver the count is an error and the argument stays as it was.
  int devices = 0;
  if (status == cudaSuccess) status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  about->devices = devices;
  return devices > 0 ? nullptr : "no GPU";
}
