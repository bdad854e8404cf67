#pragma once

#include <string>

#include "model/config.h"
#include "parallel/linear.h"

namespace triax {

/// Causal self-attention: q, k and v side by side (column-parallel, heads cut over the tensor axis), rotary
/// positions for llama, the attention core, and the row-parallel output. With fewer key-value heads than
/// tensor ranks, adjacent ranks hold copies of a head.
///     x [T, H] -> qkv [T, (A + 2K)/t D] -> out [T, A/t D] -> y [T, H] without the output's bias
/// (x and y [T/t, H] with sequence parallelism). Selective recomputation keeps qkv and computes out again.
class Attention {
 public:
  /// `name`: "layers.0.attention".
  Attention(const std::string& name, const ModelConfig& model);
  void declare(ParamStore& params, int tensor);
  void plan(Placement& slot, const ActivationShape& shape);
  /// This rank's keys and values, as AttentionCached lays them out; copies of heads included.
  void plan_cache(Placement& cache, int64_t positions, DType dtype);

  /// x may lie where y does.
  void forward(Pass& pass, const Tensor& x, const Tensor& y) const;
  /// The backward down to the gradient of qkv, which has no use for x: in the slot, in `spare`, memory of any
  /// size that nobody else uses, or in `frame`. `dx` is memory apart from dy.
  Tensor backward_core(Pass& pass, const Tensor& dy, const Tensor& dx, const Tensor& spare,
                       Scratch::Frame& frame) const;
  /// The rest of it. On one tensor rank dx may lie where x does.
  void backward_qkv(Pass& pass, const Tensor& x, const Tensor& d_qkv, const Tensor& dx) const;
  void backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const;
  /// Added to y by whoever consumes it; empty for llama.
  Tensor out_bias(const Pass& pass) const { return out_.bias(pass); }

 private:
  /// What the attention core leaves: its output, and log-sum-exp for its backward.
  struct Core {
    Tensor out, lse;
  };
  void run_core(Pass& pass, const Core& core) const;
  /// The core's result for the backward: from the slot, or computed again from qkv.
  Core core_again(Pass& pass, Scratch::Frame& frame) const;
  void rotate(Pass& pass, const Tensor& qkv, bool inverse) const;

  std::string name_;
  int64_t heads_, kv_heads_, head_size_;  // of the whole model until declare(), of this rank after it
  bool rotary_;
  float theta_;
  RopeStretch stretch_;
  ColumnLinear qkv_;
  RowLinear out_;
  int slot_qkv_ = -1, cache_keys_ = -1, cache_values_ = -1;
  Place core_out_, core_lse_;
  Place grad_qkv_, grad_out_;
};

}  // namespace triax
