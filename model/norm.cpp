#include "model/norm.h"

namespace triax {

Norm::Norm(std::string name, const ModelConfig& model)
    : name_(std::move(name)),
      layer_norm_(model.architecture == Architecture::gpt2),
      hidden_(model.hidden_size),
      epsilon_(static_cast<float>(layer_norm_ ? model.layer_norm_epsilon : model.rms_norm_eps)) {}

void Norm::declare(ParamStore& params) {
  weight_ = params.declare({{name_ + ".weight", {hidden_}, {}, {Init::Kind::ones, 0}, false}});
  if (layer_norm_) bias_ = params.declare({{name_ + ".bias", {hidden_}, {}, {}, false}});
}

void Norm::forward(Pass& pass, const NormState& state, const Tensor& y) const {
  forward_residual(pass, state.residual, Tensor(), Tensor(), state, y);
}

void Norm::forward_residual(Pass& pass, const Tensor& x, const Tensor& delta, const Tensor& delta_bias,
                            const NormState& state, const Tensor& y) const {
  const ParamStore& params = pass.context.params;
  NormForward op{};
  op.t = x[0], op.h = hidden_;
  op.x = x;
  op.delta = delta;
  op.delta_bias = delta_bias;
  op.residual = delta ? state.residual : Tensor();
  op.weight = params.weight(weight_);
  op.bias = layer_norm_ ? params.weight(bias_) : Tensor();
  op.epsilon = epsilon_;
  op.y = y;
  op.mean = layer_norm_ ? state.mean.f32() : nullptr;
  op.rstd = state.rstd.f32();
  pass.context.kernels.norm_forward(pass.context.device, op);
}

void Norm::backward_input(Pass& pass, const NormState& state, const Tensor& dy, const Tensor& dr,
                          const Tensor& dx) const {
  // The weights first: dx may be written over dy.
  if (pass.weights_now) backward_weight(pass, state, dy);
  NormBackwardInput op{};
  op.t = dy[0], op.h = hidden_;
  op.dy = dy;
  op.residual = state.residual;
  op.weight = pass.context.params.weight(weight_);
  op.mean = layer_norm_ ? state.mean.f32() : nullptr;
  op.rstd = state.rstd.f32();
  op.dr = dr;
  op.dx = dx;
  pass.context.kernels.norm_backward_input(pass.context.device, op);
}

void Norm::backward_weight(Pass& pass, const NormState& state, const Tensor& dy) const {
  ParamStore& params = pass.context.params;
  NormBackwardWeight op{};
  op.t = dy[0], op.h = hidden_;
  op.dy = dy;
  op.residual = state.residual;
  op.mean = layer_norm_ ? state.mean.f32() : nullptr;
  op.rstd = state.rstd.f32();
  op.dweight = params.grad(weight_).f32();
  op.dbias = layer_norm_ ? params.grad(bias_).f32() : nullptr;
  pass.context.kernels.norm_backward_weight(pass.context.device, op);
}

}  // namespace triax
