#include "kernels/cuda/cuda.h"
#include "kernels/cuda/limits.h"

namespace triax {

const Kernels& cuda_kernels() {
  static const Kernels table{
      .name = "cuda",
      .gemm = cuda::gemm,
      .residual_add = cuda::residual_add,
      .norm_forward = cuda::norm_forward,
      .norm_backward_input = cuda::norm_backward_input,
      .norm_backward_weight = cuda::norm_backward_weight,
      .attention_forward = cuda::attention_forward,
      .attention_backward = cuda::attention_backward,
      .attention_cached = cuda::attention_cached,
      .rope = cuda::rope,
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .position_forward = cuda::position_forward,
      .position_backward = cuda::position_backward,
      .dropout = cuda::dropout,
      .bias_gelu_forward = cuda::bias_gelu_forward,
      .bias_gelu_backward = cuda::bias_gelu_backward,
      .swiglu_forward = cuda::swiglu_forward,
      .swiglu_backward = cuda::swiglu_backward,
      .cross_entropy_max = cuda::cross_entropy_max,
      .cross_entropy_sum = cuda::cross_entropy_sum,
      .cross_entropy_backward = cuda::cross_entropy_backward,
      .cross_entropy_loss = cuda::cross_entropy_loss,
      .bias_backward = cuda::bias_backward,
      .adamw = cuda::adamw,
      .squared_norm = cuda::squared_norm,
      .normalise_sums = cuda::normalise_sums,
      .decide_update = cuda::decide_update,
      .add = cuda::add,
      .cast = cuda::cast,
      .find_non_finite = cuda::find_non_finite,
      .fuses_gelu = cuda::fuses_gelu,
      .gemm_gelu = cuda::gemm_gelu,
      .gemm_gelu_backward = cuda::gemm_gelu_backward,
      .workspace_bytes = cuda_workspace_bytes,
  };
  return table;
}

}  // namespace triax
