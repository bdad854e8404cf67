#include "pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "pipeline/channels.h"
#include "pipeline/schedule.h"

namespace triax {
namespace {

double duration(ActionKind kind, const ActionTimes& times) {
  switch (kind) {
    case ActionKind::forward:
      return times.forward;
    case ActionKind::backward:
      return times.backward_input + times.backward_weight;
    case ActionKind::backward_input:
      return times.backward_input;
    case ActionKind::backward_weight:
      return times.backward_weight;
    default:
      return 0;
  }
}

// Stages advance as far as their messages let them, until all have ended.
class Clocks {
 public:
  Clocks(const Schedule& schedule, const std::vector<ActionTimes>& parts)
      : schedule_(schedule),
        parts_(parts),
        channels_(schedule),
        sent_(channels_.all().size()),
        received_(channels_.all().size(), 0),
        at_(schedule.stages.size(), 0),
        now_(schedule.stages.size(), 0.0) {
    timeline_.shape = schedule.shape;
    timeline_.stages.resize(schedule.stages.size());
  }

  Timeline run() {
    const int stages = static_cast<int>(at_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages; ++stage)
        while (at_[stage] < schedule_.stages[stage].size() && step(stage)) moved = true;
    }
    for (int stage = 0; stage < stages; ++stage)
      check(at_[stage] == schedule_.stages[stage].size(),
            "schedule {}: stage {} waits for ever at action {}; validate() it before it is simulated",
            schedule_.shape.name, stage, at_[stage]);
    return std::move(timeline_);
  }

 private:
  bool step(int stage) {
    const Action& action = schedule_.stages[stage][at_[stage]];
    const int channel = channels_.of(stage, action.kind);
    const ActionTimes& times = parts_[model_part(schedule_.shape, stage, action.chunk)];
    if (is_send(action.kind)) {
      sent_[channel].push_back(now_[stage] + times.message);
    } else if (is_receive(action.kind)) {
      if (received_[channel] == sent_[channel].size()) return false;
      now_[stage] = std::max(now_[stage], sent_[channel][received_[channel]++]);
    } else {
      const double start = now_[stage];
      now_[stage] += duration(action.kind, times);
      timeline_.stages[stage].push_back({action, start, now_[stage]});
    }
    ++at_[stage];
    return true;
  }

  const Schedule& schedule_;
  const std::vector<ActionTimes>& parts_;
  Channels channels_;
  std::vector<std::vector<double>> sent_;  // per channel, when each message arrives
  std::vector<size_t> received_;           // per channel, how many were taken
  std::vector<size_t> at_;
  std::vector<double> now_;
  Timeline timeline_;
};

// The quickest message from part to part, of one direction: forwards, or backwards (the input half, if
// apart).
class QuickestMessage {
 public:
  QuickestMessage(const ScheduleShape& shape, bool forward)
      : shape_(shape),
        forward_(forward),
        spans_(static_cast<size_t>(shape.stages * shape.virtual_stages * shape.micro_batches)) {}

  void add(int part, const Span& span) {
    if (span.action.kind == ActionKind::backward_weight ||
        (span.action.kind == ActionKind::forward) != forward_)
      return;
    spans_.at(index(part, span.action.micro_batch)) = &span;
  }

  // From `part` to the next one, or back; infinite when there was none.
  double beside(int part) const {
    double least = std::numeric_limits<double>::infinity();
    for (int k = 0; k < shape_.micro_batches; ++k) {
      const Span* made = spans_[index(forward_ ? part : part + 1, k)];
      const Span* needed = spans_[index(forward_ ? part + 1 : part, k)];
      if (made && needed) least = std::min(least, needed->start - made->end);
    }
    return least;
  }

 private:
  size_t index(int part, int micro_batch) const {
    return static_cast<size_t>(part) * static_cast<size_t>(shape_.micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  const ScheduleShape& shape_;
  bool forward_;
  std::vector<const Span*> spans_;
};

}  // namespace

void measure(Timeline& timeline) {
  double first = 0, last = 0, all_work = 0;
  bool any = false;
  std::vector<double> work;
  timeline.cost = 0;
  for (const auto& spans : timeline.stages) {
    double sum = 0;
    for (const Span& span : spans) sum += span.end - span.start;
    work.push_back(sum);
    all_work += sum;
    if (spans.empty()) continue;
    first = any ? std::min(first, spans.front().start) : spans.front().start;
    last = any ? std::max(last, spans.back().end) : spans.back().end;
    any = true;
    timeline.cost = std::max(timeline.cost, spans.back().end - spans.front().start);
  }
  timeline.makespan = last - first;
  const auto idle = [&](double busy) {
    return timeline.cost > 0 ? (timeline.cost - busy) / timeline.cost : 0;
  };
  timeline.stage_bubbles.clear();
  for (double busy : work) timeline.stage_bubbles.push_back(idle(busy));
  timeline.bubble = idle(work.empty() ? 0 : all_work / static_cast<double>(work.size()));
}

Timeline simulate(const Schedule& schedule, const std::vector<ActionTimes>& parts) {
  const int expected = schedule.shape.stages * schedule.shape.virtual_stages;
  check(static_cast<int>(parts.size()) == expected, "times of {} parts of a model that is cut into {}",
        parts.size(), expected);
  Timeline timeline = Clocks(schedule, parts).run();
  measure(timeline);
  return timeline;
}

Timeline simulate(const Schedule& schedule, const ActionTimes& times) {
  ActionTimes share = times;
  for (double* t : {&share.forward, &share.backward_input, &share.backward_weight})
    *t /= schedule.shape.virtual_stages;
  return simulate(schedule,
                  std::vector<ActionTimes>(
                      static_cast<size_t>(schedule.shape.stages * schedule.shape.virtual_stages), share));
}

std::vector<ActionTimes> mean_times(const Timeline& timeline) {
  const ScheduleShape& shape = timeline.shape;
  std::vector<ActionTimes> parts(static_cast<size_t>(shape.stages * shape.virtual_stages), {0, 0, 0, 0});
  QuickestMessage there(shape, true), back(shape, false);
  for (int stage = 0; stage < static_cast<int>(timeline.stages.size()); ++stage)
    for (const Span& span : timeline.stages[stage]) {
      const int part = model_part(shape, stage, span.action.chunk);
      ActionTimes& times = parts.at(static_cast<size_t>(part));
      double& sum = span.action.kind == ActionKind::forward           ? times.forward
                    : span.action.kind == ActionKind::backward_weight ? times.backward_weight
                                                                      : times.backward_input;
      sum += (span.end - span.start) / shape.micro_batches;
      there.add(part, span);
      back.add(part, span);
    }
  double message = std::numeric_limits<double>::infinity();
  for (int part = 0; part + 1 < static_cast<int>(parts.size()) && shape.stages > 1; ++part)
    message = std::min(message, (there.beside(part) + back.beside(part)) / 2);
  for (ActionTimes& times : parts) times.message = std::isfinite(message) ? std::max(0.0, message) : 0;
  return parts;
}

}  // namespace triax
