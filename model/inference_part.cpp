#include "model/inference_part.h"

namespace triax {

void InferencePart::declare(ParamStore& params) {
  for (auto& module : modules_) module->declare(params);
}

void InferencePart::plan_cache(int64_t positions, DType dtype) {
  for (auto& module : modules_) module->plan_cache(cache_, positions, dtype);
}

const std::vector<Placement>& InferencePart::layouts(const Pass& pass, int64_t hidden, DType dtype) {
  auto& layouts = layouts_[{pass.batch, pass.sequence}];
  if (!layouts.empty()) return layouts;
  ActivationShape shape{.batch = pass.batch, .sequence = pass.sequence, .hidden = hidden};
  shape.dtype = dtype;
  shape.tensor = pass.context.mesh.tp().size();
  // A module numbers its tensors alike whatever their sizes, so that it finds them in every layout.
  for (auto& module : modules_) module->plan(layouts.emplace_back(), shape);
  return layouts;
}

void InferencePart::forward(Pass& pass, const Tensor& x, const Tensor& y, int64_t hidden, DType dtype) {
  const std::vector<Placement>& layout = layouts(pass, hidden, dtype);
  Scratch::Frame frame(pass.context.scratch);
  Tensor turns[2];
  for (Tensor& turn : turns) turn = frame.take("activation between layers", {pass.tokens(), hidden}, dtype);
  Tensor in = first_ ? Tensor() : x;
  for (size_t i = 0; i < modules_.size(); ++i) {
    const bool ends = i + 1 == modules_.size();
    const Tensor out = !ends ? turns[i % 2] : last_ ? Tensor() : y;
    Scratch::Frame inner(pass.context.scratch);
    Pass own = pass;
    const int64_t bytes = static_cast<int64_t>(layout[i].bytes());
    own.slot = {&layout[i], inner.take("activations of a layer", {bytes}, DType::u8).raw()};
    modules_[i]->forward(own, in, out);
    in = out;
  }
}

}  // namespace triax
