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

Mlp::Mlp(const std::string& name, const ModelConfig& model)
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
  slot_u_ = slot.add(gated_ ? "gate and up" : "up", u, shape.dtype);
  grad_u_.plan(slot, shape.split_backward, gated_ ? "gradient of gate and up" : "gradient of up", u,
               shape.dtype);
}

bool Mlp::fuses_gelu(const Pass& pass) const {
  const Kernels& kernels = pass.context.kernels;
  return !gated_ && kernels.fuses_gelu && kernels.fuses_gelu(pass.slot[slot_u_].dtype(), width_);
}

void Mlp::activate(Pass& pass, const Tensor& a) const {
  const Tensor u = pass.slot[slot_u_];
  Context& c = pass.context;
  if (gated_)
    c.kernels.swiglu_forward(c.device, {u[0], width_, u, a});
  else
    c.kernels.bias_gelu_forward(c.device, {u[0], width_, u, fuses_gelu(pass) ? Tensor() : up_.bias(pass), a});
}

void Mlp::activate_backward(Pass& pass, const Tensor& d_a, const Tensor& a, const Tensor& d_u) const {
  const Tensor u = pass.slot[slot_u_];
  Context& c = pass.context;
  if (gated_)
    c.kernels.swiglu_backward(c.device, {u[0], width_, u, d_a, d_u, a});
  else
    c.kernels.bias_gelu_backward(c.device, {u[0], width_, u, up_.bias(pass), d_a, d_u, a});
}

Tensor Mlp::take_activation(Pass& pass, Scratch::Frame& frame) const {
  const Tensor u = pass.slot[slot_u_];
  return frame.take("activation", {u[0], width_}, u.dtype());
}

void Mlp::forward(Pass& pass, const Tensor& x, const Tensor& y) const {
  if (pass.replay && !fuses_gelu(pass)) return up_.forward(pass, x, pass.slot[slot_u_], /*add_bias=*/false);
  Scratch::Frame frame(pass.context.scratch);
  const Tensor a = take_activation(pass, frame);
  if (fuses_gelu(pass)) {
    up_.forward_gelu(pass, x, pass.slot[slot_u_], a);
  } else {
    up_.forward(pass, x, pass.slot[slot_u_], /*add_bias=*/false);
    activate(pass, a);
  }
  if (!pass.replay) down_.forward(pass, a, y);
}

// Nobody reads u once its gradient is there, unless the weights' gradients come later. So what an
// activation's gradient is made of gives its memory to what that makes, d_a to d_u and u to a, or with a
// gate, where u is twice as wide, u to d_u and d_a to a.
void Mlp::backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) const {
  const Tensor u = pass.slot[slot_u_];
  Scratch::Frame frame(pass.context.scratch);
  const Tensor d_u = gated_ && pass.weights_now ? u : grad_u_.get(pass, frame);
  {
    Scratch::Frame inner(pass.context.scratch);
    if (fuses_gelu(pass)) {
      const Tensor a = pass.weights_now ? take_activation(pass, inner) : Tensor();
      if (a) activate(pass, a);
      down_.backward_input(pass, a, dy, d_u, u);
    } else {
      const Tensor d_a = gated_ ? inner.take("gradient of activation", {u[0], width_}, dy.dtype()) : d_u;
      const Tensor a = !pass.weights_now ? Tensor() : gated_ ? d_a : u;
      down_.backward_input(pass, a, dy, d_a, {}, [&] { activate_backward(pass, d_a, a, d_u); });
    }
  }
  up_.backward_input(pass, x, d_u, dx);
}

void Mlp::backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const {
  Scratch::Frame frame(pass.context.scratch);
  const Tensor a = take_activation(pass, frame);
  activate(pass, a);
  down_.backward_weight(pass, a, dy);
  up_.backward_weight(pass, x, grad_u_.kept(pass));
}

}  // namespace triax
