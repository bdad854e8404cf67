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

// The n-th forward of an interleaved stage, or its n-th backward: p micro-batches pass through chunk after
// chunk (backward: from the last chunk to the first), then the next p.
Action nth_interleaved(const ScheduleShape& shape, ActionKind kind, int n) {
  const int group = shape.stages * shape.virtual_stages, chunk = n % group / shape.stages;
  return {kind, n / group * shape.stages + n % shape.stages,
          kind == ActionKind::forward ? chunk : shape.virtual_stages - 1 - chunk};
}

Actions interleaved(const ScheduleShape& shape, int stage) {
  // In advance: what fills the other chunks of the pipeline, and two per later stage, because the forwards of
  // a group must have come round before its first backward.
  const int total = shape.micro_batches * shape.virtual_stages;
  const int ahead =
      std::min(total, 2 * (shape.stages - 1 - stage) + (shape.virtual_stages - 1) * shape.stages);
  Actions work;
  for (int n = 0; n < ahead; ++n) work.push_back(nth_interleaved(shape, ActionKind::forward, n));
  for (int n = 0; n < total; ++n) {
    if (n + ahead < total) work.push_back(nth_interleaved(shape, ActionKind::forward, n + ahead));
    work.push_back(nth_interleaved(shape, ActionKind::backward, n));
  }
  return work;
}

Actions zero_bubble_h1(const ScheduleShape& shape, int stage) {
  // The order of 1f1b, with the weight half of a micro-batch `stage` micro-batches later: a later stage,
  // which has fewer forwards ahead, keeps as much as the first, and fills the waits at the end with weight
  // halves.
  Actions work;
  for (const Action& a : one_forward_one_backward(shape, stage)) {
    if (a.kind == ActionKind::forward) {
      work.push_back(a);
      continue;
    }
    work.push_back({ActionKind::backward_input, a.micro_batch, 0});
    if (a.micro_batch >= stage) work.push_back({ActionKind::backward_weight, a.micro_batch - stage, 0});
  }
  for (int k = std::max(0, shape.micro_batches - stage); k < shape.micro_batches; ++k)
    work.push_back({ActionKind::backward_weight, k, 0});
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

void check_interleaved(const ScheduleShape& shape) {
  if (shape.virtual_stages < 2)
    fail_usage(
        "schedule interleaved has several model chunks per stage, but virtual_stages is {}; set "
        "virtual_stages to 2 or more, or take 1f1b",
        shape.virtual_stages);
  if (shape.micro_batches % shape.stages != 0) {
    const int below = shape.micro_batches / shape.stages * shape.stages;
    fail_usage(
        "schedule interleaved needs micro-batches divisible by its {} stages, but there are {}; there "
        "can be {}{}",
        shape.stages, shape.micro_batches, below > 0 ? fmt::format("{} or ", below) : "",
        below + shape.stages);
  }
}

constexpr Generator generators[] = {
    {"gpipe", gpipe, check_one_chunk},
    {"1f1b", one_forward_one_backward, check_one_chunk},
    {"interleaved", interleaved, check_interleaved},
    {"zb-h1", zero_bubble_h1, check_one_chunk},
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

Schedule make_evaluation(const ScheduleShape& shape) {
  check_shape(shape);
  Schedule schedule{shape, {}, true};
  for (int stage = 0; stage < shape.stages; ++stage) {
    Actions work;
    // The order of interleaved suits one chunk too: it is then that of the micro-batches.
    for (int n = 0; n < shape.micro_batches * shape.virtual_stages; ++n)
      work.push_back(nth_interleaved(shape, ActionKind::forward, n));
    schedule.stages.push_back(with_messages(shape, stage, work));
  }
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

std::optional<ActionKind> kind_of(std::string_view name) {
  for (int kind = 0; kind <= static_cast<int>(ActionKind::send_backward); ++kind)
    if (name_of(static_cast<ActionKind>(kind)) == name) return static_cast<ActionKind>(kind);
  return std::nullopt;
}

std::string describe(const Action& action, const ScheduleShape& shape) {
  std::string text = fmt::format("{} of micro-batch {}", name_of(action.kind), action.micro_batch);
  if (shape.virtual_stages > 1) text += fmt::format(", chunk {}", action.chunk);
  return text;
}

}  // namespace triax
