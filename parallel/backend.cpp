#include "parallel/backend.h"

#include <dlfcn.h>

#include <cstdlib>

#include "comm/communicator.h"
#include "core/cuda_choices.h"
#include "core/error.h"
#include "core/library.h"
#include "kernels/cuda/about.h"
#include "kernels/cuda/limits.h"
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

// Whether each of a launcher's processes is a rank; else ranks are threads of this one.
bool ranks_are_processes() {
  int rank = 0, launched = 0;
  return started_by_mpi(&rank, &launched) && launched > 1;
}

// What NCCL needs of the runtime, unless somebody has decided. To be set before CUDA starts.
void set_environment() {
  // Each group of processes has a stream of its own. With fewer queues than streams (8 by default) one
  // message could wait for another that its peer has not come to.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  // A kernel that is loaded at its first launch may make the host wait for the kernels that run; one of NCCL
  // that runs may wait for a peer in the same state.
  if (ranks_are_processes()) setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Why no GPU can be used, and what to do.
std::string advice(const TriaxCudaAbout& about) {
  if (about.driver == 0)
    return "There is no NVIDIA driver, or it is hidden from this process (containers: --gpus all)";
  if (about.driver / 1000 < about.runtime / 1000)
    return fmt::format(
        "The NVIDIA driver is too old: it knows CUDA up to {}, and this program needs CUDA {}.0 or newer. "
        "Update the driver",
        version_text(about.driver), about.runtime / 1000);
  return fmt::format("The driver is there, of CUDA {}; CUDA_VISIBLE_DEVICES may hide the GPUs",
                     version_text(about.driver));
}

// Opened once, by the first who asks, and never closed. A failure is told to everybody who asks.
const CudaLibrary& cuda_library() {
  static const CudaLibrary opened = [] {
    CudaLibrary cuda;
    cuda.path = place_of_library();
    set_environment();
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
          missing, advice(cuda.about));
    set_profiler_ranges(cuda.ranges());
    return cuda;
  }();
  return opened;
}

std::string place_of(int ordinal, int devices) {
  const CudaChoices choices = cuda_choices();
  std::string text = fmt::format("GPU {} of the {} that can be seen", ordinal, devices);
  if (devices > 1 && !ranks_are_processes())
    text +=
        ", which all ranks have that are threads of this process (processes, by mpirun or srun, take one "
        "each)";
  if (choices.tf32) text += "; products of fp32 in TF32 (TRIAX_CUDA_TF32)";
  if (choices.gelu_apart) text += "; GELU apart (TRIAX_CUDA_GELU)";
  if (choices.attention != CudaChoices::Attention::own)
    text += fmt::format("; attention: {} (TRIAX_CUDA_ATTENTION)",
                        choices.attention == CudaChoices::Attention::cudnn ? "cudnn" : "cudnn-deterministic");
  return text;
}

}  // namespace

void check_backend(const std::string& device, bool deterministic) {
  if (device != "cuda") return;
  const CudaChoices choices = cuda_choices();
  const bool built_with_cudnn = cuda_library().about.cudnn != 0;
  if (deterministic && choices.attention == CudaChoices::Attention::cudnn)
    fail_usage(
        "training.deterministic: true can't be kept with TRIAX_CUDA_ATTENTION=cudnn, whose backward adds in "
        "an "
        "order that chance decides; TRIAX_CUDA_ATTENTION can be own or cudnn-deterministic");
  if (choices.attention != CudaChoices::Attention::own && !built_with_cudnn)
    fail_usage(
        "TRIAX_CUDA_ATTENTION asks for cuDNN, but this program's CUDA library was built without cuDNN's "
        "headers; TRIAX_CUDA_ATTENTION can be own");
}

void check_thread_ranks(const std::string& device, int ranks) {
  if (device == "cuda" && ranks > cuda::max_thread_ranks)
    fail_usage(
        "training.device: cuda: {} ranks that are threads of one process; at most {} can share a GPU so. Use "
        "1 to {} ranks, or start them as processes by mpirun or srun",
        ranks, cuda::max_thread_ranks, cuda::max_thread_ranks);
}

void check_captures(const std::string& device) {
  if (device == "cuda" && cuda_launch_blocking())
    fail_usage(
        "training.cuda_graph: on can't be kept with CUDA_LAUNCH_BLOCKING={} in the environment, which makes "
        "the host wait for each kernel; unset it, or set cuda_graph to auto or off",
        std::getenv("CUDA_LAUNCH_BLOCKING"));
}

Backend make_backend(const std::string& device, int threads, int local_rank) {
  if (device != "cuda") return {make_cpu_device(threads), &cpu_kernels(), nullptr};
  const CudaLibrary& cuda = cuda_library();
  const int ordinal = ranks_are_processes() ? local_rank % cuda.about.devices : 0;
  return {std::unique_ptr<Device>(cuda.open_device(ordinal, threads)), cuda.kernels(), cuda.link(),
          place_of(ordinal, cuda.about.devices)};
}

}  // namespace triax
