#include "model/block.h"

namespace triax {

Block::Block(int layer, const ModelConfig& model, int tensor)
    : name_(fmt::format("layers.{}", layer)),
      tensor_(tensor),
      attention_norm_(name_ + ".attention_norm", model),
      attention_(name_ + ".attention", model),
      mlp_norm_(name_ + ".mlp_norm", model),
      mlp_(name_ + ".mlp", model) {}

void Block::declare(ParamStore& params) {
  attention_norm_.declare(params);
  attention_.declare(params, tensor_);
  mlp_norm_.declare(params);
  mlp_.declare(params, tensor_);
}

void Block::plan(Placement& slot, const ActivationShape& shape) {
  const int64_t t = shape.tokens(), h = shape.hidden;
  mean1_ = slot.add("attention_norm mean", {t}, DType::f32);
  rstd1_ = slot.add("attention_norm rstd", {t}, DType::f32);
  normed1_ = slot.add("attention_norm out", {t, h}, DType::f32);
  attention_.plan(slot, shape);
  residual_ = slot.add("residual", {t, h}, DType::f32);
  mean2_ = slot.add("mlp_norm mean", {t}, DType::f32);
  rstd2_ = slot.add("mlp_norm rstd", {t}, DType::f32);
  normed2_ = slot.add("mlp_norm out", {t, h}, DType::f32);
  mlp_.plan(slot, shape);
  if (shape.split_backward) grad_y_.plan(slot, true, "gradient of out", {t, h});
  grad_normed2_.plan(slot, shape.split_backward, "gradient of mlp_norm out", {t, h});
  grad_residual_.plan(slot, shape.split_backward, "gradient of residual", {t, h});
  grad_normed1_.plan(slot, shape.split_backward, "gradient of attention_norm out", {t, h});
}

NormState Block::first_state(const Pass& pass, const Tensor& x) const {
  return {x, pass.slot[mean1_], pass.slot[rstd1_]};
}

NormState Block::second_state(const Pass& pass) const {
  return {pass.slot[residual_], pass.slot[mean2_], pass.slot[rstd2_]};
}

void Block::forward(Pass& pass, const Tensor& x, const Tensor& y) {
  Context& c = pass.context;
  const Tensor normed1 = pass.slot[normed1_], normed2 = pass.slot[normed2_], residual = pass.slot[residual_];
  attention_norm_.forward(pass, first_state(pass, x), normed1);
  attention_.forward(pass, normed1, y);  // y serves as memory for both halves' outputs
  mlp_norm_.forward_residual(pass, x, y, attention_.out_bias(pass), second_state(pass), normed2);
  mlp_.forward(pass, normed2, y);
  const Tensor bias = mlp_.out_bias(pass);
  c.kernels.residual_add(c.device,
                         {y[0], y[1], residual.f32(), y.f32(), bias ? bias.f32() : nullptr, y.f32()});
}

void Block::backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Scratch::Frame frame(pass.context.scratch);
  const Tensor d_normed2 = grad_normed2_.get(pass, frame);
  const Tensor d_residual = grad_residual_.get(pass, frame);
  const Tensor d_normed1 = grad_normed1_.get(pass, frame);
  mlp_.backward_input(pass, pass.slot[normed2_], dy, d_normed2);
  mlp_norm_.backward_input(pass, second_state(pass), d_normed2, dy, d_residual);
  attention_.backward_input(pass, pass.slot[normed1_], d_residual, d_normed1);
  attention_norm_.backward_input(pass, first_state(pass, x), d_normed1, d_residual, dx);
  if (!pass.weights_now) pass.context.device.copy(grad_y_.kept(pass).raw(), dy.raw(), dy.bytes());
}

void Block::backward_weight(Pass& pass, const Tensor& x) {
  mlp_.backward_weight(pass, pass.slot[normed2_], grad_y_.kept(pass));
  mlp_norm_.backward_weight(pass, second_state(pass), grad_normed2_.kept(pass));
  attention_.backward_weight(pass, pass.slot[normed1_], grad_residual_.kept(pass));
  attention_norm_.backward_weight(pass, first_state(pass, x), grad_normed1_.kept(pass));
}

}  // namespace triax
