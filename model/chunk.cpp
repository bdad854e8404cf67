#include "model/chunk.h"

#include "parallel/sequence.h"

namespace triax {

Chunk::Chunk(std::vector<std::unique_ptr<Module>> modules, bool first, bool last)
    : modules_(std::move(modules)), first_(first), last_(last), workspaces_(modules_.size()) {}

void Chunk::declare(ParamStore& params) {
  const auto entries = [&] { return static_cast<int>(params.entries().size()); };
  for (auto& module : modules_) {
    first_entry_.push_back(entries());
    module->declare(params);
  }
  first_entry_.push_back(entries());
}

void Chunk::done(const Pass& pass, size_t module) const {
  pass.context.params.settle_grads(first_entry_[module], first_entry_[module + 1]);
  if (pass.gradients_done) (*pass.gradients_done)(first_entry_[module], first_entry_[module + 1]);
}

bool Chunk::replays(size_t module) const {
  return shape_.recompute == Recompute::full && modules_[module]->replayable();
}

void Chunk::plan(const ActivationShape& shape, const ParamStore* lender) {
  shape_ = shape;
  ActivationShape at_once = shape;  // a layer whose forward and backward follow each other
  at_once.recompute = Recompute::none;
  at_once.split_backward = false;
  const Shape activation = shape.activation();
  const Shape kept = shape.partition_inputs ? Shape{activation.numel() / shape.tensor} : activation;
  for (size_t i = 0; i < modules_.size(); ++i) {
    const bool has_input = i > 0 || !first_, is_head = last_ && i + 1 == modules_.size();
    if (lender) {
      // The head's input becomes the gradient that all modules hand on, which outlives everything else here.
      const auto [begin, end] = is_head ? std::pair<size_t, size_t>() : lender->lendable(first_entry_[i]);
      slot_.lend(begin, end);
    }
    inputs_.push_back(has_input ? slot_.add(modules_[i]->name() + " in", kept, shape.dtype) : -1);
    modules_[i]->plan(replays(i) ? workspaces_[i] : slot_, replays(i) ? at_once : shape);
  }
  check(!last_ || inputs_.back() >= 0, "{} ends a model, and has no input", modules_.back()->name());
  // Over its input, which nobody reads any more, unless that is kept in parts.
  if (last_)
    head_gradient_ =
        shape.partition_inputs ? slot_.add("gradient of head in", activation, shape.dtype) : inputs_.back();
}

Tensor Chunk::message(const Context& context, const Tensor& activation) const {
  return shape_.scatter_messages ? part_of(context.mesh.tp(), activation) : activation;
}

Tensor Chunk::input(const Context& context, const Slot& slot) const {
  const Tensor kept = slot[inputs_.at(0)];
  return shape_.partition_inputs ? kept : message(context, kept);
}

void Chunk::set_input(const Context& context, const Slot& slot, const Tensor& x) const {
  const Tensor to = input(context, slot);
  const Tensor from = to.numel() == x.numel() ? x : part_of(context.mesh.tp(), x);
  context.device.copy(to.raw(), from.raw(), to.bytes());
}

Tensor Chunk::input_of(Pass& pass, size_t module, Scratch::Frame& frame) const {
  if (inputs_[module] < 0) return Tensor();
  const Tensor kept = pass.slot[inputs_[module]];
  if (!shape_.partition_inputs) return kept;
  const Tensor whole = frame.take("input of a layer", shape_.activation(), shape_.dtype);
  join_parts(pass.context.mesh.tp(), kept, whole);
  return whole;
}

Pass Chunk::with_workspace(const Pass& pass, size_t module, Scratch::Frame& frame) const {
  Pass own = pass;
  if (!replays(module)) return own;
  const Placement& layout = workspaces_[module];
  own.slot = {&layout,
              frame.take("activations of a layer", {static_cast<int64_t>(layout.bytes())}, DType::u8).raw()};
  own.weights_now = true;
  return own;
}

void Chunk::forward(Pass& pass, const Tensor& y) {
  Context& c = pass.context;
  Scratch::Frame frame(c.scratch);
  // With parts alone in the slot, whole inputs take turns in scratch memory.
  Tensor turns[2];
  if (shape_.partition_inputs)
    for (Tensor& turn : turns)
      turn = frame.take("activation between layers", shape_.activation(), shape_.dtype);
  const auto input = [&](size_t i) {
    if (inputs_[i] < 0) return Tensor();
    return shape_.partition_inputs ? turns[i % 2] : pass.slot[inputs_[i]];
  };
  if (!first_ && (shape_.scatter_messages || shape_.partition_inputs))
    join_parts(c.mesh.tp(), this->input(c, pass.slot), input(0));
  for (size_t i = 0; i < modules_.size(); ++i) {
    const bool ends = i + 1 == modules_.size();
    const Tensor out = ends ? y : input(i + 1);
    Scratch::Frame inner(c.scratch);
    Pass own = with_workspace(pass, i, inner);
    modules_[i]->forward(own, input(i), ends && last_ ? pass.slot[head_gradient_] : out);
    if (own.probe) (*own.probe)(own, *modules_[i], false, out);
    if (!ends && shape_.partition_inputs) {
      const Tensor part = part_of(c.mesh.tp(), out);
      c.device.copy(pass.slot[inputs_[i + 1]].raw(), part.raw(), part.bytes());
    }
  }
}

void Chunk::backward_input(Pass& pass, const Tensor& dy, const Tensor& dx) {
  Context& c = pass.context;
  if (!last_ && shape_.scatter_messages) join_parts(c.mesh.tp(), message(c, dy), dy);
  const Tensor gradient =
      last_ ? pass.slot[head_gradient_] : dy;  // of each module's output, one after the other
  for (size_t i = modules_.size(); i-- > 0;) {
    const Tensor out = i > 0 ? gradient : dx;
    Scratch::Frame inner(c.scratch);
    Pass own = with_workspace(pass, i, inner);
    // Embedding and head, which never replay, do without their input here.
    const Tensor x = replays(i) || !shape_.partition_inputs ? input_of(pass, i, inner) : Tensor();
    if (replays(i)) {
      Scratch::Frame again(c.scratch);
      own.replay = true;
      modules_[i]->forward(own, x, again.take("output of a layer", shape_.activation(), shape_.dtype));
      own.replay = false;
    }
    modules_[i]->backward_input(own, x, gradient, out);
    if (own.probe) (*own.probe)(own, *modules_[i], true, out);
    if (own.weights_now) done(pass, i);
  }
}

void Chunk::backward_weight(Pass& pass) {
  for (size_t i = modules_.size(); i-- > 0;) {
    if (replays(i)) continue;  // done by backward_input
    modules_[i]->backward_weight(pass, inputs_[i] >= 0 ? pass.slot[inputs_[i]] : Tensor());
    done(pass, i);
  }
}

}  // namespace triax
