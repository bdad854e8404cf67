#include "engine/stage.h"

#include <algorithm>

namespace triax {

Stage::Stage(Context& context, std::vector<Chunk> chunks, const ActivationShape& shape,
             const Schedule& training, const Schedule& evaluation)
    : context_(&context),
      chunks_(std::move(chunks)),
      shape_(shape),
      training_(program_of(training)),
      evaluation_(program_of(evaluation)),
      slots_("activations", context.device),
      messages_("messages", context.device) {
  // Later micro-batches would find the gradients of earlier ones there, other chunks those of this one; a
  // backward in halves takes up its layers twice.
  lends_ = training.shape.micro_batches == 1 && chunks_.size() == 1 && !shape.split_backward;
  size_t slot_bytes = 0;
  for (Chunk& chunk : chunks_) {
    chunk.plan(shape_, lends_ ? &context.params : nullptr);
    slot_bytes = std::max(slot_bytes, chunk.slot().bytes());
  }
  const int count = std::max(training_.slots.count, evaluation_.slots.count);
  check(!lends_ || count == 1, "{} micro-batches at a time share lent memory", count);
  for (int i = 0; i < count; ++i)
    slot_index_.push_back(
        slots_.declare(fmt::format("slot {}", i), {static_cast<int64_t>(slot_bytes)}, DType::u8));
  const Shape activation = shape_.activation();
  if (alone() && chunks_.size() == 1) return;
  for (const char* name : {"forward message 0", "forward message 1", "backward message 0",
                           "backward message 1", "gradient received"})
    message_index_.push_back(messages_.declare(name, activation, shape_.dtype));
}

Stage::Program Stage::program_of(const Schedule& schedule) const {
  const auto stage = static_cast<size_t>(context_->mesh.coordinate("pp"));
  return {schedule.stages.at(stage), assign_slots(schedule).at(stage)};
}

size_t Stage::lent_bytes() const {
  size_t most = 0;
  for (const Chunk& chunk : chunks_) most = std::max(most, chunk.slot().lent_bytes());
  return most;
}

void Stage::commit() {
  slots_.commit();
  messages_.commit();
  if (message_index_.empty()) return;
  for (int i = 0; i < 2; ++i) {
    out_forward_.buffer[i] = messages_[message_index_[i]];
    out_backward_.buffer[i] = messages_[message_index_[2 + i]];
  }
  incoming_gradient_ = messages_[message_index_[4]];
}

Stage::Outbox::~Outbox() noexcept = default;

Tensor Stage::Outbox::take() {
  pending[next].wait();
  return buffer[next];
}

void Stage::Outbox::sent(Pending message) {
  pending[next] = std::move(message);
  next = 1 - next;
}

void Stage::Outbox::finish() {
  for (Pending& p : pending) p.wait();
}

int Stage::stage_after() const {
  return (context_->mesh.coordinate("pp") + 1) % context_->mesh.size("pp");
}
int Stage::stage_before() const {
  return (context_->mesh.coordinate("pp") + context_->mesh.size("pp") - 1) % context_->mesh.size("pp");
}

Slot Stage::slot_of(const Action& action) const {
  const int slot = program().slots.slot_of(action.chunk, action.micro_batch);
  return {&chunks_.at(static_cast<size_t>(action.chunk)).slot(),
          slots_[slot_index_.at(static_cast<size_t>(slot))].raw(),
          lends_ ? context_->params.grads().raw() : nullptr};
}

Pass Stage::pass_of(const Action& action) const {
  Pass pass{.context = *context_, .slot = slot_of(action)};
  pass.batch = shape_.batch;
  pass.sequence = shape_.sequence;
  const MicroBatches& batch = *run_.micro_batches;
  const auto of_micro_batch = [&](const Tensor& all) {
    return all.rows(action.micro_batch, 1).reshape({shape_.tokens()});
  };
  pass.ids = of_micro_batch(batch.ids);
  pass.targets = of_micro_batch(batch.targets);
  if (batch.slots) pass.slots = of_micro_batch(batch.slots);
  pass.evaluate = run_.evaluate;
  pass.loss = run_.loss;
  pass.loss_scale = run_.loss_scale;
  // Every chunk's backward, and its weight halves, come in ascending order of micro-batches.
  if (action.micro_batch + 1 == batch.ids[0]) pass.gradients_done = run_.gradients_done;
  pass.probe = run_.probe;
  pass.seed = run_.seed;
  pass.dropout = run_.dropout;
  pass.first_token = (run_.first_sequence + action.micro_batch * shape_.batch) * shape_.sequence;
  return pass;
}

void Stage::run(const Run& run) {
  run_ = run;
  execute(program().actions, *this, run_.evaluate ? nullptr : trace_);
  out_forward_.finish();
  out_backward_.finish();
}

void Stage::recv_forward(const Action& action) {
  context_->mesh.pp_forward().recv(chunk_of(action).input(*context_, slot_of(action)), stage_before()).wait();
}

void Stage::make_room(const Action& action) {
  const Chunk& chunk = chunk_of(action);
  if (action.kind == ActionKind::forward) {
    // Without messages: what the chunk before has left in the buffer is this one's input.
    if (alone() && !chunk.first()) chunk.set_input(*context_, slot_of(action), outgoing_);
    if (!chunk.last()) outgoing_ = out_forward_.take();
  } else {
    if (alone()) incoming_gradient_ = outgoing_gradient_;  // as the next chunk has left it
    if (!chunk.first()) outgoing_gradient_ = out_backward_.take();
    if (alone()) out_backward_.sent({});
  }
}

void Stage::forward(const Action& action) {
  Chunk& chunk = chunk_of(action);
  Pass pass = pass_of(action);
  chunk.forward(pass, chunk.last() ? Tensor() : outgoing_);
}

void Stage::send_forward(const Action& action) {
  const Tensor message = chunk_of(action).message(*context_, outgoing_);
  out_forward_.sent(context_->mesh.pp_forward().send(message, stage_after()));
}

void Stage::recv_backward(const Action& action) {
  const Tensor message = chunk_of(action).message(*context_, incoming_gradient_);
  context_->mesh.pp_backward().recv(message, stage_after()).wait();
}

void Stage::run_backward(const Action& action, bool weights_now) {
  Chunk& chunk = chunk_of(action);
  Pass pass = pass_of(action);
  pass.weights_now = weights_now;
  chunk.backward_input(pass, chunk.last() ? Tensor() : incoming_gradient_,
                       chunk.first() ? Tensor() : outgoing_gradient_);
}

void Stage::backward(const Action& action) {
  run_backward(action, true);
}

void Stage::backward_input(const Action& action) {
  run_backward(action, false);
}

void Stage::backward_weight(const Action& action) {
  Pass pass = pass_of(action);
  chunk_of(action).backward_weight(pass);
}

void Stage::send_backward(const Action& action) {
  const Tensor message = chunk_of(action).message(*context_, outgoing_gradient_);
  out_backward_.sent(context_->mesh.pp_backward().send(message, stage_before()));
}

}  // namespace triax
