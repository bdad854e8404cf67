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
  /// For Mesh.
  DeviceMemory memory() const { return {device.get(), link}; }
};

/// Throws a usage error that says what is missing unless ranks can compute on `device` here: training.device,
/// auto | cpu | cuda. `auto` is the CPU. For a GPU the CUDA library (lib/triax_cuda.so, or the file that the
/// environment's TRIAX_CUDA_LIBRARY names), a driver and a GPU that is visible are asked for. `deterministic`
/// (training.deterministic): also where the environment asks for a kernel whose sums' order chance decides.
void check_backend(const std::string& device, bool deterministic = false);

/// The backend of a rank that is `local_rank` among those of this host, on the calling thread. On GPUs ranks
/// are dealt out in turn to those that are visible (CUDA_VISIBLE_DEVICES). `threads`: compute threads of the
/// rank on the host. Errors as check_backend().
Backend make_backend(const std::string& device, int threads, int local_rank);

}  // namespace triax
