#include "model/mlp.h"

#include "model/init.h"

#include <algorithm>

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

int64_t Mlp::piece(const Pass& pass) const {
  const Kernels& kernels = pass.context.kernels;
  const Tensor u = pass.slot[slot_u_];
  if (fuses_gelu(pass) || !kernels.product_depth) return u[0];
  return std::min(u[0], kernels.product_depth(u.dtype(), u[0]));
}

Tensor Mlp::take_activation(Pass& pass, Scratch::Frame& frame) const {
  return frame.take("activation", {piece(pass), width_}, pass.slot[slot_u_].dtype());
}

void Mlp::activate(Pass& pass, const Tensor& u, const Tensor& a) const {
  Context& c = pass.context;
  if (gated_)
    c.kernels.swiglu_forward(c.device, {u[0], width_, u, a});
  else
    c.kernels.bias_gelu_forward(c.device, {u[0], width_, u, fuses_gelu(pass) ? Tensor() : up_.bias(pass), a});
}

RowPieces Mlp::activated(Pass& pass, const Tensor& memory) const {
  return {memory[0], [this, &pass, memory](int64_t first, int64_t rows) {
            const Tensor a = memory.rows(0, rows);
            activate(pass, pass.slot[slot_u_].rows(first, rows), a);
            return a;
          }};
}

void Mlp::forward(Pass& pass, const Tensor& x, const Tensor& y) const {
  const Tensor u = pass.slot[slot_u_];
  if (pass.replay && !fuses_gelu(pass)) return up_.forward(pass, x, u, /*add_bias=*/false);
  Scratch::Frame frame(pass.context.scratch);
  const Tensor memory = take_activation(pass, frame);
  if (fuses_gelu(pass)) {
    up_.forward_gelu(pass, x, u, memory);
    if (!pass.replay) down_.forward(pass, memory, y);
  } else {
    up_.forward(pass, x, u, /*add_bias=*/false);
    down_.forward(pass, activated(pass, memory), y);
  }
}

Tensor Mlp::backward_down(Pass& pass, const Tensor& dy, Scratch::Frame& frame) const {
  const Tensor u = pass.slot[slot_u_];
  if (fuses_gelu(pass)) {
    const Tensor d_u = grad_u_.get(pass, frame);
    Scratch::Frame inner(pass.context.scratch);
    const Tensor a = pass.weights_now ? take_activation(pass, inner) : Tensor();
    if (pass.weights_now) activate(pass, u, a);
    down_.backward_input(pass, a, dy, d_u, u);
    return d_u;
  }
  // Nobody reads u once its gradient is there, unless the weights' gradients come later: it gives its memory
  // to its gradient, as a's gradient does to a.
  const Tensor d_u = pass.weights_now ? u : grad_u_.kept(pass);
  Scratch::Frame inner(pass.context.scratch);
  const Tensor memory = take_activation(pass, inner);
  const RowPieces d_a(memory[0], [&](int64_t, int64_t rows) { return memory.rows(0, rows); });
  const RowPieces a(memory[0], [&](int64_t first, int64_t rows) {
    const Tensor piece = memory.rows(0, rows);
    activate_backward(pass, u.rows(first, rows), piece, d_u.rows(first, rows));
    return piece;
  });
  down_.backward_input(pass, a, dy, d_a);
  return d_u;
}

void Mlp::backward_up(Pass& pass, const Tensor& x, const Tensor& d_u, const Tensor& dx) const {
  up_.backward_input(pass, x, d_u, dx);
}

void Mlp::activate_backward(Pass& pass, const Tensor& u, const Tensor& d_a, const Tensor& d_u) const {
  const Tensor a = pass.weights_now ? d_a : Tensor();
  Context& c = pass.context;
  if (gated_)
    c.kernels.swiglu_backward(c.device, {u[0], width_, u, d_a, d_u, a});
  else
    c.kernels.bias_gelu_backward(c.device, {u[0], width_, u, up_.bias(pass), d_a, d_u, a});
}

void Mlp::backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const {
  Scratch::Frame frame(pass.context.scratch);
  down_.backward_weight(pass, activated(pass, take_activation(pass, frame)), dy);
  up_.backward_weight(pass, x, grad_u_.kept(pass));
}

}  // namespace triax
