#include "pipeline/validate.h"

#include <optional>
#include <set>
#include <string>

#include "core/error.h"
#include "pipeline/channels.h"
#include "pipeline/schedule.h"

namespace triax {
namespace {

// The checks of one stage that need no other stage.
class StageCheck {
 public:
  StageCheck(const Schedule& schedule, int stage)
      : shape_(schedule.shape),
        actions_(schedule.stages[stage]),
        forward_only_(schedule.forward_only),
        stage_(stage),
        seen_(kinds * shape_.virtual_stages * shape_.micro_batches, absent),
        last_forward_(shape_.virtual_stages, -1),
        last_input_(shape_.virtual_stages, -1),
        last_weight_(shape_.virtual_stages, -1) {}

  void run() {
    for (index_ = 0; index_ < static_cast<int>(actions_.size()); ++index_) {
      check_range();
      check_action();
      seen(action().kind) = index_;
    }
    check_complete();
  }

 private:
  static constexpr int kinds = 8;
  static constexpr int absent = -1;

  const Action& action() const { return actions_[index_]; }
  int& seen(ActionKind kind) { return seen(kind, action().chunk, action().micro_batch); }
  int& seen(ActionKind kind, int chunk, int micro_batch) {
    return seen_[(static_cast<int>(kind) * shape_.virtual_stages + chunk) * shape_.micro_batches +
                 micro_batch];
  }
  bool done(ActionKind kind) { return seen(kind) != absent; }

  [[noreturn]] void refuse(const std::string& reason) const {
    fail("schedule {}, stage {}, action {} ({}): {}", shape_.name, stage_, index_, describe(action(), shape_),
         reason);
  }
  void require(bool condition, const char* reason) const {
    if (!condition) refuse(reason);
  }

  void check_range() const {
    if (action().micro_batch < 0 || action().micro_batch >= shape_.micro_batches)
      refuse(fmt::format("the micro-batches are 0 to {}", shape_.micro_batches - 1));
    if (action().chunk < 0 || action().chunk >= shape_.virtual_stages)
      refuse(fmt::format("this chunk is {}, and the chunks are 0 to {}", action().chunk,
                         shape_.virtual_stages - 1));
  }

  void check_action() {
    if (done(action().kind)) refuse(fmt::format("it was already done by action {}", seen(action().kind)));
    const bool previous = has_previous(shape_, stage_, action().chunk);
    const bool next = has_next(shape_, stage_, action().chunk);
    switch (action().kind) {
      case ActionKind::recv_forward:
        return require(previous, "this part of the model gets no input from another stage");
      case ActionKind::forward:
        if (previous) require(done(ActionKind::recv_forward), "its input has not been received");
        take_over(output_, -1);
        ascending(last_forward_);
        return fill(output_, next || hands_over(+1));
      case ActionKind::send_forward:
        require(next, "no stage waits for the output of this part of the model");
        require(done(ActionKind::forward), "its forward has not run");
        return drain(output_);
      case ActionKind::recv_backward:
        require(!forward_only_, "an evaluation has no backward");
        require(next, "this part of the model gets no gradient from another stage");
        require(!gradient_, "the gradient received before it has not been used, and there is one buffer");
        gradient_ = action();
        return;
      case ActionKind::backward:
        require(!forward_only_, "an evaluation has no backward");
        require(!done(ActionKind::backward_input) && !done(ActionKind::backward_weight),
                "its backward has already been run by halves");
        ascending(last_weight_);
        return check_gradient(next, previous);
      case ActionKind::backward_input:
        require(!forward_only_, "an evaluation has no backward");
        require(!done(ActionKind::backward), "its backward has already run");
        return check_gradient(next, previous);
      case ActionKind::backward_weight:
        require(done(ActionKind::backward_input), "its backward_input has not run");
        return ascending(last_weight_);
      case ActionKind::send_backward:
        require(previous, "no stage waits for the gradient of this input");
        require(done(ActionKind::backward) || done(ActionKind::backward_input), "its backward has not run");
        return drain(input_gradient_);
    }
    refuse("this kind of action is unknown");
  }

  void check_gradient(bool next, bool previous) {
    require(done(ActionKind::forward), "its forward has not run");
    if (next) {
      require(done(ActionKind::recv_backward), "its gradient has not been received");
      gradient_.reset();
    }
    take_over(input_gradient_, +1);
    ascending(last_input_);
    fill(input_gradient_, previous || hands_over(-1));
  }

  // With one stage a chunk hands its result to the chunk beside it (+1: to the next) without a message.
  bool hands_over(int direction) const {
    const int other = action().chunk + direction;
    return shape_.stages == 1 && other >= 0 && other < shape_.virtual_stages;
  }

  // Takes the result of the chunk beside it (-1: of the one before) out of the buffer.
  void take_over(std::optional<Action>& buffer, int direction) {
    if (!hands_over(direction)) return;
    const int from = action().chunk + direction;
    require(buffer && buffer->chunk == from && buffer->micro_batch == action().micro_batch,
            "the result of the chunk beside it is not there");
    buffer.reset();
  }

  void ascending(std::vector<int>& last) {
    int& before = last[action().chunk];
    if (action().micro_batch <= before)
      refuse(
          fmt::format("it comes after that of micro-batch {}; the order must ascend, so that sums have the "
                      "same bits under every schedule",
                      before));
    before = action().micro_batch;
  }

  // One buffer per direction: what is made is sent before the next is made.
  void fill(std::optional<Action>& buffer, bool used) {
    if (!used) return;
    if (buffer)
      refuse(fmt::format("the result of {} has not been sent or taken over yet", describe(*buffer, shape_)));
    buffer = action();
  }
  static void drain(std::optional<Action>& buffer) { buffer.reset(); }

  void check_complete() {
    for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) {
      const bool previous = has_previous(shape_, stage_, chunk), next = has_next(shape_, stage_, chunk);
      for (int k = 0; k < shape_.micro_batches; ++k) {
        const auto expect = [&](bool wanted, ActionKind kind) {
          if (wanted && seen(kind, chunk, k) == absent)
            fail("schedule {}, stage {}: after its {} actions {} is missing", shape_.name, stage_,
                 actions_.size(), describe({kind, k, chunk}, shape_));
        };
        const bool whole = seen(ActionKind::backward, chunk, k) != absent;
        const bool half = seen(ActionKind::backward_input, chunk, k) != absent;
        expect(previous, ActionKind::recv_forward);
        expect(true, ActionKind::forward);
        expect(next, ActionKind::send_forward);
        if (forward_only_) continue;
        expect(next, ActionKind::recv_backward);
        expect(!whole && !half, ActionKind::backward);
        expect(half, ActionKind::backward_weight);
        expect(previous, ActionKind::send_backward);
      }
    }
  }

  const ScheduleShape& shape_;
  const std::vector<Action>& actions_;
  bool forward_only_;
  int stage_;
  int index_ = 0;
  std::vector<int> seen_;  // [kind, chunk, micro_batch] -> index of the action
  std::vector<int> last_forward_, last_input_, last_weight_;  // per chunk, the latest micro-batch
  std::optional<Action> output_, input_gradient_;             // made, not yet sent
  std::optional<Action> gradient_;                            // received, not yet used
};

// The n-th send of a channel must be the n-th receive's message.
void check_channels(const Schedule& schedule) {
  const Channels channels(schedule);
  for (const Channel& c : channels.all()) {
    const auto& sent = schedule.stages[c.from];
    const auto& received = schedule.stages[c.to];
    // Both lists are complete by now (StageCheck), so they have one length and only the order can differ.
    for (size_t n = 0; n < c.sends.size(); ++n) {
      const Action &s = sent[c.sends[n]], &r = received[c.receives[n]];
      if (!matches(schedule.shape, c, s, r))
        fail(
            "schedule {}, stage {}, action {} ({}): the message that stage {} sends here as number {} is its "
            "action {} ({}); sends and receives must come in the same order",
            schedule.shape.name, c.to, c.receives[n], describe(r, schedule.shape), c.from, n, c.sends[n],
            describe(s, schedule.shape));
    }
  }
}

// Runs the schedule without buffers: a send ends when its receive is reached.
class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule)
      : schedule_(schedule), channels_(schedule), at_(schedule.stages.size(), 0) {
    progress_.resize(channels_.all().size());
  }

  void run() {
    const int stages = static_cast<int>(at_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages; ++stage)
        while (at_[stage] < schedule_.stages[stage].size() && step(stage)) moved = true;
    }
    for (int stage = 0; stage < stages; ++stage)
      if (at_[stage] < schedule_.stages[stage].size()) report(stage);
  }

 private:
  struct Progress {
    size_t started = 0, ended = 0;
  };

  bool step(int stage) {
    const Action& action = schedule_.stages[stage][at_[stage]];
    if (!ready(stage, action)) return false;
    const int channel = channels_.of(stage, action.kind);
    if (channel >= 0) {
      if (is_send(action.kind))
        ++progress_[channel].started;
      else
        ++progress_[channel].ended;
    }
    ++at_[stage];
    return true;
  }

  bool ready(int stage, const Action& action) const {
    const int channel = channels_.of(stage, fills(stage, action));
    if (channel < 0) return true;
    const Progress& p = progress_[channel];
    return is_receive(action.kind) ? p.ended < p.started : p.ended == p.started;
  }

  // The message whose buffer the action needs: its own, or the one that carries away what it computes.
  ActionKind fills(int stage, const Action& action) const {
    if (action.kind == ActionKind::forward && has_next(schedule_.shape, stage, action.chunk))
      return ActionKind::send_forward;
    if ((action.kind == ActionKind::backward || action.kind == ActionKind::backward_input) &&
        has_previous(schedule_.shape, stage, action.chunk))
      return ActionKind::send_backward;
    return action.kind;
  }

  [[noreturn]] void report(int first) const {
    std::string waiting;
    for (size_t stage = 0; stage < at_.size(); ++stage) {
      if (at_[stage] == schedule_.stages[stage].size()) continue;
      const Action& action = schedule_.stages[stage][at_[stage]];
      const Channel& c = channels_.all()[channels_.of(stage, fills(stage, action))];
      waiting += fmt::format("\n  stage {}, action {} ({}) waits for stage {} to {}", stage, at_[stage],
                             describe(action, schedule_.shape), is_receive(action.kind) ? c.from : c.to,
                             is_receive(action.kind) ? "send it" : "receive the message before it");
    }
    fail("schedule {}, stage {}, action {}: deadlock when no message is buffered:{}", schedule_.shape.name,
         first, at_[first], waiting);
  }

  const Schedule& schedule_;
  Channels channels_;
  std::vector<size_t> at_;  // per stage, the next action
  std::vector<Progress> progress_;
};

}  // namespace

void validate(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  check(shape.stages >= 1 && shape.virtual_stages >= 1 && shape.micro_batches >= 1,
        "schedule {} has {} stages, {} chunks per stage and {} micro-batches; each must be at least 1",
        shape.name, shape.stages, shape.virtual_stages, shape.micro_batches);
  check(static_cast<int>(schedule.stages.size()) == shape.stages, "schedule {} is for {} stages and lists {}",
        shape.name, shape.stages, schedule.stages.size());
  for (int stage = 0; stage < shape.stages; ++stage) StageCheck(schedule, stage).run();
  check_channels(schedule);
  Rendezvous(schedule).run();
}

std::vector<SlotPlan> assign_slots(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  std::vector<SlotPlan> plans;
  for (const auto& actions : schedule.stages) {
    SlotPlan plan{0, shape.micro_batches, std::vector<int>(shape.virtual_stages * shape.micro_batches, -1)};
    std::set<int> free;  // the lowest is taken first, so that a new slot is opened only when all are held
    for (const Action& a : actions) {
      int& slot = plan.slots[a.chunk * shape.micro_batches + a.micro_batch];
      if (a.kind == ActionKind::recv_forward || (a.kind == ActionKind::forward && slot < 0)) {
        if (free.empty()) free.insert(plan.count++);
        slot = free.extract(free.begin()).value();
      }
      if (schedule.forward_only ? a.kind == ActionKind::forward
                                : a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight)
        free.insert(slot);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<int> in_flight(const Schedule& schedule) {
  std::vector<int> counts;
  for (const SlotPlan& plan : assign_slots(schedule)) counts.push_back(plan.count);
  return counts;
}

}  // namespace triax
