#pragma once

#include <cstddef>

namespace triax {

/// What the environment chooses of the GPU's kernels; each variable's values stand in docs/gpu.md.
struct CudaChoices {
  enum class Attention { own, cudnn, cudnn_deterministic };
  Attention attention = Attention::own;  ///< TRIAX_CUDA_ATTENTION
  bool gelu_apart = false;               ///< TRIAX_CUDA_GELU: a kernel of its own, not the end of a product
  bool tf32 = false;                     ///< TRIAX_CUDA_TF32: products of fp32 with operands of 11 bits
};

/// Bytes of a GPU's memory that the kernels of one rank share, beside what their calls are given.
inline constexpr size_t cuda_workspace_bytes = size_t{32} << 20;

/// As the environment has it; a value that is none of a variable's is a usage error.
CudaChoices cuda_choices();

/// CUDA_LAUNCH_BLOCKING: each kernel's launch returns when the kernel is done, and tells its fault.
bool cuda_launch_blocking();

}  // namespace triax
