#include "kernels/cpu/cpu.h"

namespace triax {

const Kernels& cpu_kernels() {
  static const Kernels table{
      .name = "cpu",
      .gemm = cpu::gemm,
      .residual_add = cpu::residual_add,
      .norm_forward = cpu::norm_forward,
      .norm_backward_input = cpu::norm_backward_input,
      .norm_backward_weight = cpu::norm_backward_weight,
      .attention_forward = cpu::attention_forward,
      .attention_backward = cpu::attention_backward,
      .attention_cached = cpu::attention_cached,
      .rope = cpu::rope,
      .embedding_forward = cpu::embedding_forward,
      .embedding_backward = cpu::embedding_backward,
      .position_forward = cpu::position_forward,
      .position_backward = cpu::position_backward,
      .dropout = cpu::dropout,
      .bias_gelu_forward = cpu::bias_gelu_forward,
      .bias_gelu_backward = cpu::bias_gelu_backward,
      .swiglu_forward = cpu::swiglu_forward,
      .swiglu_backward = cpu::swiglu_backward,
      .cross_entropy_max = cpu::cross_entropy_max,
      .cross_entropy_sum = cpu::cross_entropy_sum,
      .cross_entropy_backward = cpu::cross_entropy_backward,
      .cross_entropy_loss = cpu::cross_entropy_loss,
      .bias_backward = cpu::bias_backward,
      .adamw = cpu::adamw,
      .squared_norm = cpu::squared_norm,
      .normalise_sums = cpu::normalise_sums,
      .decide_update = cpu::decide_update,
      .add = cpu::add,
      .cast = cpu::cast,
      .find_non_finite = cpu::find_non_finite,
      .product_depth = cpu::product_depth,
  };
  return table;
}

}  // namespace triax
