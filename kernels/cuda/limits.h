#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_choices.h"
#include "core/dtype.h"

namespace triax::cuda {

// What the GPU's kernels take, for them and for whoever checks a job before there is a GPU
// (engine/legal.cpp).

inline constexpr int64_t attention_max_head = 256;  ///< elements of a head
inline constexpr int64_t norm_max_row = 16384;      ///< elements of a row
inline constexpr int max_thread_ranks = 64;         ///< of a group whose ranks are threads of one process
/// Of the workspace (cuda_workspace_bytes), for the backward of attention, per token and query head.
inline constexpr size_t attention_bytes = sizeof(float);
/// Of it, for the gradient of the embedding, per row of a rank's table.
inline constexpr size_t embedding_row_bytes = 2 * sizeof(int);

/// Kernels::fuses_gelu of the GPU's table, and of one that plans for it (null_cuda_kernels): bf16, and rows
/// of a multiple of 8 elements, as cuBLASLt wants those of GELU's argument; not with TRIAX_CUDA_GELU=apart.
inline bool fuses_gelu(DType dtype, int64_t columns) {
  static const bool apart = cuda_choices().gelu_apart;
  return !apart && dtype == DType::bf16 && columns % 8 == 0;
}

}  // namespace triax::cuda
