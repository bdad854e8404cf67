#pragma once

#include <string>

#include "model/config.h"
#include "parallel/linear.h"

namespace triax {

/// The feed-forward half of a block: column-parallel up (and gate), the activation on each rank's own
/// columns, row-parallel down. A nonlinearity needs whole sums, so the column cut comes first (Megatron-LM,
/// section 3).
///     x [T, H] -> u [T, F/t] (gate and up: [T, 2 F/t]) -> a [T, F/t] -> y [T, H] without down's bias
/// (x and y [T/t, H] with sequence parallelism). Of these u alone is kept; the backward computes a again,
/// which the gradient of the activation has at hand. Neither a nor its gradient is ever there as a whole,
/// where the kernels can sum weights' gradients in pieces of tokens (Kernels::product_depth). u is without
/// the bias, but where the kernels have GELU at the end of a product (Kernels::fuses_gelu).
class Mlp {
 public:
  /// `name`: "layers.0.mlp".
  Mlp(const std::string& name, const ModelConfig& model);
  void declare(ParamStore& params, int tensor);
  void plan(Placement& slot, const ActivationShape& shape);

  /// With pass.replay up to u: y is not written. x may lie where y does.
  void forward(Pass& pass, const Tensor& x, const Tensor& y) const;
  /// Down's half of the backward, which has no use for x: the gradient of u, in the slot or in `frame`.
  Tensor backward_down(Pass& pass, const Tensor& dy, Scratch::Frame& frame) const;
  /// Up's half. On one tensor rank dx may lie where x does.
  void backward_up(Pass& pass, const Tensor& x, const Tensor& d_u, const Tensor& dx) const;
  void backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const;
  /// Memory of the slot that nobody reads once backward_up is through; empty when backward_weight will.
  Tensor spare(const Pass& pass) const { return pass.weights_now ? pass.slot[slot_u_] : Tensor(); }
  /// Added to y by whoever consumes it; empty for llama.
  Tensor out_bias(const Pass& pass) const { return down_.bias(pass); }

 private:
  bool fuses_gelu(const Pass& pass) const;
  /// Tokens whose a is there at a time: all, or as many as the gradient of down's weight sums at a time.
  int64_t piece(const Pass& pass) const;
  /// Memory for a, or its gradient, of a piece, or of all tokens where they are not cut.
  Tensor take_activation(Pass& pass, Scratch::Frame& frame) const;
  /// Rows of a from those of u.
  void activate(Pass& pass, const Tensor& u, const Tensor& a) const;
  /// a from u, piece by piece in `memory`.
  RowPieces activated(Pass& pass, const Tensor& memory) const;
  /// The gradient of u's rows from that of a's, which becomes a once more where the weights' gradients are
  /// due.
  void activate_backward(Pass& pass, const Tensor& u, const Tensor& d_a, const Tensor& d_u) const;

  bool gated_;
  int64_t width_;  // F, of this rank after declare()
  ColumnLinear up_;
  RowLinear down_;
  int slot_u_ = -1;
  Place grad_u_;
};

}  // namespace triax
