#include "engine/stage.h"

#include <algorithm>
#include <set>

namespace triax {

namespace {

// Slots of one chunk that a list of actions has in use at most at the same time.
int slots_needed(const std::vector<Action>& actions, int chunk) {
  std::set<int> in_use;
  bool keeps = false;  // an evaluation gives its slot back after the forward
  for (const Action& a : actions)
    keeps |= a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight;
  size_t most = 0;
  for (const Action& a : actions) {
    if (a.chunk != chunk) continue;
    if (a.kind == ActionKind::recv_forward || a.kind == ActionKind::forward) in_use.insert(a.micro_batch);
    most = std::max(most, in_use.size());
    const bool frees = keeps ? a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight
                             : a.kind == ActionKind::forward;
    if (frees) in_use.erase(a.micro_batch);
  }
  return static_cast<int>(most);
}

}  // namespace

Stage::Stage(Context& context, std::vector<Chunk> chunks, const ActivationShape& shape,
             const std::vector<std::vector<Action>>& schedules)
    : context_(&context),
      chunks_(std::move(chunks)),
      shape_(shape),
      slots_("activations", context.device),
      messages_("messages", context.device) {
  for (size_t c = 0; c < chunks_.size(); ++c) {
    chunks_[c].plan(shape_);
    int count = 0;
    for (const auto& actions : schedules) count = std::max(count, slots_needed(actions, static_cast<int>(c)));
    auto& blocks = slot_blocks_.emplace_back();
    for (int i = 0; i < count; ++i)
      blocks.push_back(slots_.declare(fmt::format("slot {} of chunk {}", i, c),
                                      {static_cast<int64_t>(chunks_[c].slot().bytes())}, DType::u8));
    slot_user_.emplace_back(static_cast<size_t>(count), -1);
  }
  const Shape activation{shape_.tokens(), shape_.hidden};
  const bool sends = context.mesh.size("pp") > 1;
  if (sends) {
    for (const char* name :
         {"forward message 0", "forward message 1", "backward message 0", "backward message 1"})
      outbox_index_.push_back(messages_.declare(name, activation, DType::f32));
    inbox_index_ = messages_.declare("gradient received", activation, DType::f32);
  }
}

int Stage::slot_count() const {
  size_t count = 0;
  for (const auto& blocks : slot_blocks_) count += blocks.size();
  return static_cast<int>(count);
}

void Stage::commit() {
  slots_.commit();
  messages_.commit();
  if (inbox_index_ < 0) return;
  for (int i = 0; i < 2; ++i) {
    out_forward_.buffer[i] = messages_[outbox_index_[i]];
    out_backward_.buffer[i] = messages_[outbox_index_[2 + i]];
  }
  incoming_gradient_ = messages_[inbox_index_];
}

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
  const size_t c = static_cast<size_t>(action.chunk);
  const auto& users = slot_user_.at(c);
  const auto found = std::find(users.begin(), users.end(), action.micro_batch);
  if (found == users.end()) return {};
  return {&chunks_[c].slot(), slots_[slot_blocks_[c][static_cast<size_t>(found - users.begin())]].raw()};
}

Slot Stage::take_slot(const Action& action) {
  if (const Slot mine = slot_of(action); mine.placement) return mine;
  auto& users = slot_user_.at(static_cast<size_t>(action.chunk));
  const auto free = std::find(users.begin(), users.end(), -1);
  check(free != users.end(),
        "no free slot for micro-batch {} of chunk {}: the schedule keeps more than the {} planned",
        action.micro_batch, action.chunk, users.size());
  *free = action.micro_batch;
  return slot_of(action);
}

void Stage::free_slot(const Action& action) {
  auto& users = slot_user_.at(static_cast<size_t>(action.chunk));
  std::replace(users.begin(), users.end(), action.micro_batch, -1);
}

Pass Stage::pass_of(const Action& action, const Slot& slot) const {
  Pass pass{.context = *context_, .slot = slot};
  pass.batch = shape_.batch;
  pass.sequence = shape_.sequence;
  pass.ids = run_.micro_batches->ids.rows(action.micro_batch, 1).reshape({shape_.tokens()});
  pass.targets = run_.micro_batches->targets.rows(action.micro_batch, 1).reshape({shape_.tokens()});
  pass.evaluate = run_.evaluate;
  pass.loss = run_.loss;
  pass.loss_scale = run_.loss_scale;
  return pass;
}

void Stage::run(const std::vector<Action>& actions, const Run& run) {
  run_ = run;
  execute(actions, *this);
  out_forward_.finish();
  out_backward_.finish();
}

void Stage::logits(const Tensor& ids, const Tensor& logits) {
  check(chunks_.size() == 1 && chunks_[0].first() && chunks_[0].last() && context_->mesh.size("tp") == 1,
        "logits need a model on one rank");
  const Action action{ActionKind::forward, 0, 0};
  Pass pass{.context = *context_, .slot = take_slot(action)};
  pass.batch = shape_.batch;
  pass.sequence = shape_.sequence;
  pass.ids = ids;
  pass.evaluate = true;
  pass.logits = logits;
  chunks_[0].forward(pass, Tensor());
  free_slot(action);
}

void Stage::recv_forward(const Action& action) {
  const Chunk& chunk = chunks_.at(static_cast<size_t>(action.chunk));
  context_->mesh.pp_forward().recv(chunk.input(take_slot(action)), stage_before()).wait();
}

void Stage::forward(const Action& action) {
  Chunk& chunk = chunks_.at(static_cast<size_t>(action.chunk));
  Pass pass = pass_of(action, take_slot(action));
  if (!chunk.last()) outgoing_ = out_forward_.take();
  chunk.forward(pass, chunk.last() ? Tensor() : outgoing_);
  if (run_.evaluate) free_slot(action);
}

void Stage::send_forward(const Action&) {
  out_forward_.sent(context_->mesh.pp_forward().send(outgoing_, stage_after()));
}

void Stage::recv_backward(const Action&) {
  context_->mesh.pp_backward().recv(incoming_gradient_, stage_after()).wait();
}

void Stage::run_backward(const Action& action, bool weights_now) {
  Chunk& chunk = chunks_.at(static_cast<size_t>(action.chunk));
  Pass pass = pass_of(action, slot_of(action));
  pass.weights_now = weights_now;
  if (!chunk.first()) outgoing_gradient_ = out_backward_.take();
  chunk.backward_input(pass, chunk.last() ? Tensor() : incoming_gradient_,
                       chunk.first() ? Tensor() : outgoing_gradient_);
}

void Stage::backward(const Action& action) {
  run_backward(action, true);
  free_slot(action);
}

void Stage::backward_input(const Action& action) {
  run_backward(action, false);
}

void Stage::backward_weight(const Action& action) {
  Pass pass = pass_of(action, slot_of(action));
  chunks_.at(static_cast<size_t>(action.chunk)).backward_weight(pass);
  free_slot(action);
}

void Stage::send_backward(const Action&) {
  out_backward_.sent(context_->mesh.pp_backward().send(outgoing_gradient_, stage_before()));
}

}  // namespace triax
