#include "parallel/backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/library.h"
#include "kernels/cuda/about.h"
#include "parallel/cuda/door.h"

namespace triax {

namespace {

constexpr const char* library_name = "triax_cuda.so";

/// The CUDA library's door.
struct CudaLibrary {
  std::string path;
  TriaxCudaAbout about{};
  decltype(&triax_cuda_open_device) open_device = nullptr;
  decltype(&triax_cuda_kernels) kernels = nullptr;
  decltype(&triax_cuda_link) link = nullptr;
  decltype(&triax_cuda_ranges) ranges = nullptr;
};

template <class F>
void find(void* library, const std::string& path, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function)
    fail_usage("training.device: cuda: {} has no {}: it is not the library that belongs to this program",
               path, name);
}

std::string place_of_library() {
  if (const char* named = std::getenv("TRIAX_CUDA_LIBRARY"); named && *named) return named;
  std::string looked;
  const std::string path = find_library(library_name, &looked).string();
  if (path.empty())
    fail_usage(
        "training.device: cuda: this program's CUDA library is missing; looked for {}. Build it where nvcc "
        "and cuBLASLt are installed (CMake: -DTRIAX_CUDA=ON), or set training.device to cpu",
        looked);
  return path;
}

// Opened once, by the first who asks, and never closed. A failure is told to everybody who asks.
const CudaLibrary& cuda_library() {
  static const CudaLibrary opened = [] {
    CudaLibrary cuda;
    cuda.path = place_of_library();
    // Each group of processes has a stream of its own. With fewer queues than streams (8 by default) one
    // message could wait for another that its peer has not come to. To be set before CUDA starts.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    void* library = dlopen(cuda.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      fail_usage(
          "training.device: cuda: {} can't be opened: {}. It needs cuBLASLt of the CUDA that it was built "
          "with: install that or set LD_LIBRARY_PATH, or set training.device to cpu",
          cuda.path, dlerror());
    decltype(&triax_cuda_about) about = nullptr;
    find(library, cuda.path, "triax_cuda_about", about);
    find(library, cuda.path, "triax_cuda_open_device", cuda.open_device);
    find(library, cuda.path, "triax_cuda_kernels", cuda.kernels);
    find(library, cuda.path, "triax_cuda_link", cuda.link);
    find(library, cuda.path, "triax_cuda_ranges", cuda.ranges);
    const char* missing = about(&cuda.about);
    if (missing)
      fail_usage(
          "training.device: cuda: no GPU can be used here: {}. {}; `nvidia-smi` shows what the driver sees; "
          "set training.device to cpu to compute without",
          missing,
          cuda.about.driver == 0
              ? "There is no NVIDIA driver, or it is hidden from this process (containers: --gpus all)"
              : fmt::format("The driver is there, of CUDA {}.{}; CUDA_VISIBLE_DEVICES may hide the GPUs",
                            cuda.about.driver / 1000, cuda.about.driver % 1000 / 10));
    set_profiler_ranges(cuda.ranges());
    return cuda;
  }();
  return opened;
}

}  // namespace

void check_backend(const std::string& device, bool deterministic) {
  if (device != "cuda") return;
  cuda_library();
  const char* attention = std::getenv("TRIAX_CUDA_ATTENTION");
  if (deterministic && attention && std::string_view(attention) == "cudnn")
    fail_usage(
        "training.deterministic: true can't be kept with TRIAX_CUDA_ATTENTION=cudnn, whose backward adds in "
        "an "
        "order that chance decides; TRIAX_CUDA_ATTENTION can be own or cudnn-deterministic");
}

Backend make_backend(const std::string& device, int threads, int local_rank) {
  if (device != "cuda") return {make_cpu_device(threads), &cpu_kernels(), nullptr};
  const CudaLibrary& cuda = cuda_library();
  const int ordinal = local_rank % cuda.about.devices;
  return {std::unique_ptr<Device>(cuda.open_device(ordinal, threads)), cuda.kernels(), cuda.link()};
}

}  // namespace triax
