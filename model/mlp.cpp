#include "model/mlp.h"

#include "model/init.h"

namespace triax {

namespace {

std::vector<Projection> projections(const std::string& name, const ModelConfig& model, bool gated) {
  std::vector<Projection> list;
  if (gated) list.push_back({name + ".gate", model.intermediate_size, 0});
  list.push_back({name + ".up", model.intermediate_size, 0});
  return list;
}

}  // namespace

Mlp::Mlp(std::string name, const ModelConfig& model)
    : gated_(model.architecture == Architecture::llama),
      width_(model.intermediate_size),
      up_(projections(name, model, gated_), model.hidden_size, !gated_,
          static_cast<float>(model.initializer_range)),
      down_(name + ".down", model.intermediate_size, model.hidden_size, !gated_, residual_stddev(model)) {}

void Mlp::declare(ParamStore& params, int tensor) {
  width_ /= tensor;
  up_.declare(params);
  down_.declare(params);
}

void Mlp::plan(Placement& slot, const ActivationShape& shape) {
  const Shape u{shape.tokens(), gated_ ? 2 * width_ : width_};
  slot_u_ = slot.add(gated_ ? "gate and up" : "up", u, DType::f32);
  slot_a_ = slot.add("activation", {shape.tokens(), width_}, DType::f32);
  grad_u_.plan(slot, shape.split_backward, gated_ ? "gradient of gate and up" : "gradient of up", u);
}

void Mlp::forward(Pass& pass, const Tensor& x, const Tensor& y) const {
  const Tensor u = pass.slot[slot_u_], a = pass.slot[slot_a_];
  Context& c = pass.context;
  up_.forward(pass, x, u, /*add_bias=*/false);
  if (gated_)
    c.kernels.swiglu_forward(c.device, {x[0], width_, u.f32(), a.f32()});
  else
    c.kernels.bias_gelu_forward(c.device, {x[0], width_, u.f32(), up_.bias(pass).f32(), a.f32()});
  down_.forward(pass, a, y);
}

void Mlp::backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) const {
  const Tensor u = pass.slot[slot_u_], a = pass.slot[slot_a_];
  Context& c = pass.context;
  Scratch::Frame frame(c.scratch);
  const Tensor d_a = frame.take("gradient of activation", a.shape());
  const Tensor d_u = grad_u_.get(pass, frame);
  down_.backward_input(pass, a, dy, d_a);
  if (gated_)
    c.kernels.swiglu_backward(c.device, {x[0], width_, u.f32(), d_a.f32(), d_u.f32()});
  else
    c.kernels.bias_gelu_backward(c.device,
                                 {x[0], width_, u.f32(), up_.bias(pass).f32(), d_a.f32(), d_u.f32()});
  up_.backward_input(pass, x, d_u, dx);
}

void Mlp::backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const {
  down_.backward_weight(pass, pass.slot[slot_a_], dy);
  up_.backward_weight(pass, x, grad_u_.kept(pass));
}

}  // namespace triax
