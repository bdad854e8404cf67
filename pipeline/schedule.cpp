#include "pipeline/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace triax {
namespace {

using Actions = std::vector<Action>;

// A generator lists the work of one stage; with_messages() puts the messages between it.
Actions gpipe(const ScheduleShape& shape, int /*stage*/) {
  Actions work;
  for (int k = 0; k < shape.micro_batches; ++k) work.push_back({ActionKind::forward, k, 0});
  for (int k = 0; k < shape.micro_batches; ++k) work.push_back({ActionKind::backward, k, 0});
  return work;
}

Actions one_forward_one_backward(const ScheduleShape& shape, int stage) {
  // The forwards in advance are those that the stages after this one can work on before the first gradient
  // comes back.
  const int ahead = std::min(shape.micro_batches, shape.stages - 1 - stage);
  Actions work;
  for (int k = 0; k < ahead; ++k) work.push_back({ActionKind::forward, k, 0});
  for (int k = 0; k < shape.micro_batches; ++k) {
    if (k + ahead < shape.micro_batches) work.push_back({ActionKind::forward, k + ahead, 0});
    work.push_back({ActionKind::backward, k, 0});
  }
  return work;
}

struct Generator {
  std::string_view name;
  Actions (*work)(const ScheduleShape&, int stage);
  void (*check)(const ScheduleShape&);  // what this schedule asks of its shape
};

void check_one_chunk(const ScheduleShape& shape) {
  if (shape.virtual_stages != 1)
    fail_usage("schedule {} has one model chunk per stage, but virtual_stages is {}; set virtual_stages to 1",
               shape.name, shape.virtual_stages);
}

constexpr Generator generators[] = {
    {"gpipe", gpipe, check_one_chunk},
    {"1f1b", one_forward_one_backward, check_one_chunk},
};

const Generator& generator_of(const ScheduleShape& shape) {
  for (const Generator& g : generators)
    if (g.name == shape.name) return g;
  fail_usage("there is no schedule called '{}'; it can be {}", shape.name, fmt::join(schedule_names(), ", "));
}

// Each receive stands right before the work that needs it and each send right after the work that made it.
Actions with_messages(const ScheduleShape& shape, int stage, const Actions& work) {
  Actions all;
  all.reserve(3 * work.size());
  for (const Action& w : work) {
    const bool previous = has_previous(shape, stage, w.chunk), next = has_next(shape, stage, w.chunk);
    const auto message = [&](bool wanted, ActionKind kind) {
      if (wanted) all.push_back({kind, w.micro_batch, w.chunk});
    };
    switch (w.kind) {
      case ActionKind::forward:
        message(previous, ActionKind::recv_forward);
        all.push_back(w);
        message(next, ActionKind::send_forward);
        break;
      case ActionKind::backward:
      case ActionKind::backward_input:
        message(next, ActionKind::recv_backward);
        all.push_back(w);
        message(previous, ActionKind::send_backward);
        break;
      default:
        all.push_back(w);
    }
  }
  return all;
}

}  // namespace

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const Generator& g : generators) names.push_back(g.name);
  return names;
}

void check_shape(const ScheduleShape& shape) {
  const Generator& generator = generator_of(shape);
  const auto at_least_one = [](std::string_view what, int value) {
    if (value < 1) fail_usage("a schedule needs at least one {}, not {}", what, value);
  };
  at_least_one("stage", shape.stages);
  at_least_one("model chunk per stage", shape.virtual_stages);
  at_least_one("micro-batch", shape.micro_batches);
  generator.check(shape);
}

Schedule make_schedule(const ScheduleShape& shape) {
  check_shape(shape);
  const Generator& generator = generator_of(shape);
  Schedule schedule{shape, {}};
  for (int stage = 0; stage < shape.stages; ++stage)
    schedule.stages.push_back(with_messages(shape, stage, generator.work(shape, stage)));
  return schedule;
}

bool is_compute(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      return true;
    default:
      return false;
  }
}

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::recv_forward:
      return "recv_forward";
    case ActionKind::forward:
      return "forward";
    case ActionKind::send_forward:
      return "send_forward";
    case ActionKind::recv_backward:
      return "recv_backward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::backward_input:
      return "backward_input";
    case ActionKind::backward_weight:
      return "backward_weight";
    case ActionKind::send_backward:
      return "send_backward";
  }
  return "unknown action";
}

std::string describe(const Action& action, const ScheduleShape& shape) {
  std::string text = fmt::format("{} of micro-batch {}", name_of(action.kind), action.micro_batch);
  if (shape.virtual_stages > 1) text += fmt::format(", chunk {}", action.chunk);
  return text;
}

}  // namespace triax
