#pragma once

#include <string>

#include "model/config.h"
#include "parallel/linear.h"

namespace triax {

/// Causal self-attention: q, k and v side by side (column-parallel, heads cut over the tensor axis), rotary
/// positions for llama, the attention core, and the row-parallel output. With fewer key-value heads than
/// tensor ranks, adjacent ranks hold copies of a head.
///     x [T, H] -> qkv [T, (A + 2K)/t D] -> out [T, A/t D] -> y [T, H] without the output's bias
class Attention {
 public:
  /// `name`: "layers.0.attention".
  Attention(std::string name, const ModelConfig& model);
  void declare(ParamStore& params, int tensor);
  void plan(Placement& slot, const ActivationShape& shape);

  void forward(Pass& pass, const Tensor& x, const Tensor& y) const;
  void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) const;
  void backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const;
  /// Added to y by whoever consumes it; empty for llama.
  Tensor out_bias(const Pass& pass) const { return out_.bias(pass); }

 private:
  void rotate(Pass& pass, const Tensor& qkv, bool inverse) const;

  int64_t heads_, kv_heads_, head_size_;  // of the whole model until declare(), of this rank after it
  bool rotary_;
  float theta_;
  ColumnLinear qkv_;
  RowLinear out_;
  int slot_qkv_ = -1, slot_out_ = -1, slot_lse_ = -1;
  GradientPlace grad_qkv_;
};

}  // namespace triax
