#include "kernels/cuda/about.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <exception>
#include <string>

#include "core/library.h"
#include "kernels/cuda/attention.h"

namespace {

// NCCL is no part of CUDA, and one GPU needs none: it is looked for, not linked.
int nccl_version() {
  void* library = dlopen(triax::nccl_library_name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  int version = 0;
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  if (!get || get(&version) != 0) version = 0;
  dlclose(library);
  return version;
}

}  // namespace

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
  about->nccl = nccl_version();
  cudaError_t status = cudaRuntimeGetVersion(&about->runtime);
  if (status == cudaSuccess) status = cudaDriverGetVersion(&about->driver);
  // Without a driver the count is an error and the argument stays as it was.
  int devices = 0;
  if (status == cudaSuccess) status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  about->devices = devices;
  return devices > 0 ? nullptr : "no GPU";
}
