#pragma once

#include <memory>
#include <string>

#include "comm/device_link.h"
#include "core/device.h"
#include "kernels/kernels.h"

namespace triax {

/// What a rank computes with: a device, its kernels, and how its memory is reached by other ranks.
struct Backend {
  std::unique_ptr<Device> device;
  const Kernels* kernels = nullptr;
  DeviceLink* link = nullptr;  ///< null on the CPU
  /// For the log: which GPU, and what the environment chooses of its kernels; empty on the CPU.
  std::string place = {};
  /// For Mesh.
  DeviceMemory memory() const { return {device.get(), link}; }
};

/// Throws a usage error that says what is missing unless ranks can compute on `device` here: training.device,
/// auto | cpu | cuda. `auto` is the CPU. For a GPU the CUDA library (lib/triax_cuda.so, or the file that the
/// environment's TRIAX_CUDA_LIBRARY names), a driver and a GPU that is visible are asked for, and the values
/// of the environment's choices of kernels (core/cuda_choices.h). `deterministic` (training.deterministic):
/// also where the environment asks for a kernel whose sums' order chance decides.
void check_backend(const std::string& device, bool deterministic = false);

/// A usage error where `ranks` that are threads of this process can't share a GPU.
void check_thread_ranks(const std::string& device, int ranks);

/// A usage error where the environment keeps steps from being captured as a CUDA graph (training.cuda_graph:
/// on).
void check_captures(const std::string& device);

/// The backend of a rank that is `local_rank` among those of this host, on the calling thread. Ranks that are
/// threads of one process reach into each other's memory: all of them have the first of the GPUs that are
/// visible (CUDA_VISIBLE_DEVICES). Those that are processes are dealt out to them in turn. `threads`: compute
/// threads of the rank on the host. Errors as check_backend().
Backend make_backend(const std::string& device, int threads, int local_rank);

}  // namespace triax
