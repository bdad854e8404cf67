#include "model/block.h"

namespace triax {

Block::Block(int layer, const ModelConfig& model, int tensor)
    : name_(fmt::format("layers.{}", layer)),
      tensor_(tensor),
      attention_norm_(name_ + ".attention_norm", model),
      attention_(name_ + ".attention", model),
      mlp_norm_(name_ + ".mlp_norm", model),
      mlp_(name_ + ".mlp", model),
      attention_dropout_(attention_dropout_site(layer), model.hidden_dropout),
      mlp_dropout_(mlp_dropout_site(layer), model.hidden_dropout) {}

void Block::declare(ParamStore& params) {
  attention_norm_.declare(params);
  attention_.declare(params, tensor_);
  mlp_norm_.declare(params);
  mlp_.declare(params, tensor_);
}

void Block::plan(Placement& slot, const ActivationShape& shape) {
  const Shape activation = shape.activation();
  const int64_t t = shape.rows();
  mean1_ = slot.add("attention_norm mean", {t}, DType::f32);
  rstd1_ = slot.add("attention_norm rstd", {t}, DType::f32);
  attention_.plan(slot, shape);
  residual_ = slot.add("residual", activation, shape.dtype);
  mean2_ = slot.add("mlp_norm mean", {t}, DType::f32);
  rstd2_ = slot.add("mlp_norm rstd", {t}, DType::f32);
  mlp_.plan(slot, shape);
  if (shape.split_backward) grad_y_.plan(slot, true, "gradient of mlp out", activation, shape.dtype);
  grad_normed2_.plan(slot, shape.split_backward, "gradient of mlp_norm out", activation, shape.dtype);
  grad_residual_.plan(slot, shape.split_backward, "gradient of residual", activation, shape.dtype);
  grad_normed1_.plan(slot, shape.split_backward, "gradient of attention_norm out", activation, shape.dtype);
}

NormState Block::first_state(const Pass& pass, const Tensor& x) const {
  return {x, pass.slot[mean1_], pass.slot[rstd1_]};
}

NormState Block::second_state(const Pass& pass) const {
  return {pass.slot[residual_], pass.slot[mean2_], pass.slot[rstd2_]};
}

Tensor Block::normed(Pass& pass, const Norm& norm, const NormState& state, Scratch::Frame& frame,
                     const Tensor& d_normed) const {
  if (!pass.weights_now) return Tensor();
  const Tensor out =
      tensor_ == 1 ? d_normed : frame.take("norm out", state.residual.shape(), state.residual.dtype());
  norm.forward(pass, state, out);
  return out;
}

// y's memory is that of the norms' and both halves' outputs, too: each is read before the next is written.
void Block::forward(Pass& pass, const Tensor& x, const Tensor& y) {
  Context& c = pass.context;
  const Tensor residual = pass.slot[residual_];
  attention_norm_.forward(pass, first_state(pass, x), y);
  attention_.forward(pass, y, y);
  const Tensor first_bias = attention_dropout_.apply(pass, y, attention_.out_bias(pass));
  mlp_norm_.forward_residual(pass, x, y, first_bias, second_state(pass), y);
  mlp_.forward(pass, y, y);
  if (pass.replay) return;
  const Tensor bias = mlp_dropout_.apply(pass, y, mlp_.out_bias(pass));
  c.kernels.residual_add(c.device, {y[0], y[1], residual, y, bias, y});
}

// Where nothing is to be kept, a norm writes its input's gradient over its output's, and memory is taken when
// it is first written: the halves of the feed-forward need theirs one after the other.
void Block::backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Scratch& scratch = pass.context.scratch;
  Scratch::Frame frame(scratch);
  const Tensor d_mlp = mlp_dropout_.gradient(pass, dy, frame);
  if (!pass.weights_now) pass.context.device.copy(grad_y_.kept(pass).raw(), d_mlp.raw(), d_mlp.bytes());
  const Tensor d_u = mlp_.backward_down(pass, d_mlp, frame);
  const Tensor read = mlp_dropout_.on(pass) ? d_mlp : Tensor();
  const Tensor d_residual = grad_residual_.get(pass, frame, read);
  {
    Scratch::Frame half(scratch);
    const Tensor d_normed2 = grad_normed2_.get(pass, half, d_residual);
    const Tensor normed2 = normed(pass, mlp_norm_, second_state(pass), half, d_normed2);
    mlp_.backward_up(pass, normed2, d_u, d_normed2);
    mlp_norm_.backward_input(pass, second_state(pass), d_normed2, dy, d_residual);
  }
  const Tensor d_normed1 = grad_normed1_.get(pass, frame, dx);
  {
    Scratch::Frame half(scratch);
    const Tensor d_attention = attention_dropout_.gradient(pass, d_residual, half);
    const Tensor d_qkv = attention_.backward_core(pass, d_attention, d_normed1, mlp_.spare(pass), half);
    const Tensor normed1 = normed(pass, attention_norm_, first_state(pass, x), half, d_normed1);
    attention_.backward_qkv(pass, normed1, d_qkv, d_normed1);
  }
  attention_norm_.backward_input(pass, first_state(pass, x), d_normed1, d_residual, dx);
}

void Block::backward_weight(Pass& pass, const Tensor& x) {
  Scratch& scratch = pass.context.scratch;
  {
    Scratch::Frame half(scratch);
    const Tensor normed2 = half.take("norm out", x.shape(), x.dtype());
    mlp_norm_.forward(pass, second_state(pass), normed2);
    mlp_.backward_weight(pass, normed2, grad_y_.kept(pass));
  }
  mlp_norm_.backward_weight(pass, second_state(pass), grad_normed2_.kept(pass));
  {
    Scratch::Frame half(scratch);
    const Tensor d_attention = attention_dropout_.gradient(pass, grad_residual_.kept(pass), half);
    const Tensor normed1 = half.take("norm out", x.shape(), x.dtype());
    attention_norm_.forward(pass, first_state(pass, x), normed1);
    attention_.backward_weight(pass, normed1, d_attention);
  }
  attention_norm_.backward_weight(pass, first_state(pass, x), grad_normed1_.kept(pass));
}

}  // namespace triax
