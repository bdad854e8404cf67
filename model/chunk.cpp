#include "model/chunk.h"

namespace triax {

Chunk::Chunk(std::vector<std::unique_ptr<Module>> modules, bool first, bool last)
    : modules_(std::move(modules)), first_(first), last_(last) {}

void Chunk::declare(ParamStore& params) {
  for (auto& module : modules_) module->declare(params);
}

void Chunk::plan(const ActivationShape& shape) {
  activation_ = {shape.tokens(), shape.hidden};
  for (size_t i = 0; i < modules_.size(); ++i) {
    const bool has_input = i > 0 || !first_;
    inputs_.push_back(has_input ? slot_.add(modules_[i]->name() + " in", activation_, DType::f32) : -1);
    modules_[i]->plan(slot_, shape);
  }
}

Tensor Chunk::input_of(const Pass& pass, size_t module) const {
  return inputs_[module] >= 0 ? pass.slot[inputs_[module]] : Tensor();
}

void Chunk::forward(Pass& pass, const Tensor& y) {
  for (size_t i = 0; i < modules_.size(); ++i) {
    const Tensor out = i + 1 < modules_.size() ? input_of(pass, i + 1) : y;
    modules_[i]->forward(pass, input_of(pass, i), out);
  }
}

void Chunk::backward_input(Pass& pass, const Tensor& dy, const Tensor& dx) {
  Scratch::Frame frame(pass.context.scratch);
  const Tensor turns[2] = {frame.take("gradient between modules", activation_),
                           frame.take("gradient between modules", activation_)};
  Tensor gradient = dy;
  for (size_t i = modules_.size(); i-- > 0;) {
    const Tensor out = i > 0 ? turns[i % 2] : dx;
    modules_[i]->backward_input(pass, input_of(pass, i), gradient, out);
    gradient = out;
  }
}

void Chunk::backward_weight(Pass& pass) {
  for (size_t i = modules_.size(); i-- > 0;) modules_[i]->backward_weight(pass, input_of(pass, i));
}

}  // namespace triax
