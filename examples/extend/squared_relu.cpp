#include "squared_relu.h"

#include <algorithm>

#include "core/error.h"

using namespace triax;

SquaredRelu::SquaredRelu(std::string name, int64_t hidden, int64_t intermediate)
    : name_(std::move(name)),
      width_(intermediate),
      up_({{name_ + ".mlp.up", intermediate, 0}}, hidden, /*bias=*/false, 0.05F),
      down_(name_ + ".mlp.down", intermediate, hidden, /*bias=*/false, 0.05F) {}

void SquaredRelu::declare(ParamStore& params) {
  up_.declare(params);
  down_.declare(params);
}

void SquaredRelu::plan(Placement& slot, const ActivationShape& shape) {
  check(!shape.split_backward && !shape.sequence_parallel && shape.dtype == DType::f32,
        "{}: fp32, without sequence parallelism, and no schedule that runs backward_weight apart", name_);
  u_ = slot.add("up", {shape.tokens(), width_ / shape.tensor}, DType::f32);
  a_ = slot.add("activation", {shape.tokens(), width_ / shape.tensor}, DType::f32);
}

void SquaredRelu::forward(Pass& pass, const Tensor& x, const Tensor& y) {
  const Tensor u = pass.slot[u_], a = pass.slot[a_];
  up_.forward(pass, x, u);
  for (int64_t i = 0; i < u.numel(); ++i) {
    const float positive = std::max(u.f32()[i], 0.0F);
    a.f32()[i] = positive * positive;
  }
  down_.forward(pass, a, y);
  for (int64_t i = 0; i < y.numel(); ++i) y.f32()[i] += x.f32()[i];
}

void SquaredRelu::backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const Tensor u = pass.slot[u_], a = pass.slot[a_];
  Scratch::Frame frame(pass.context.scratch);
  const Tensor du = frame.take("gradient of up", u.shape());
  down_.backward_input(pass, a, dy, du);  // of the activation, so far
  for (int64_t i = 0; i < u.numel(); ++i) du.f32()[i] *= 2 * std::max(u.f32()[i], 0.0F);
  const Tensor dx_up = frame.take("gradient of up's input", x.shape());  // dx may lie where dy does
  up_.backward_input(pass, x, du, dx_up);
  for (int64_t i = 0; i < dx.numel(); ++i) dx.f32()[i] = dy.f32()[i] + dx_up.f32()[i];
}
