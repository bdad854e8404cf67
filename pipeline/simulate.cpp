#include "pipeline/simulate.h"

#include <algorithm>

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
  Clocks(const Schedule& schedule, const ActionTimes& times)
      : schedule_(schedule),
        times_(times),
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
    if (is_send(action.kind)) {
      sent_[channel].push_back(now_[stage]);
    } else if (is_receive(action.kind)) {
      if (received_[channel] == sent_[channel].size()) return false;
      now_[stage] = std::max(now_[stage], sent_[channel][received_[channel]++] + times_.message);
    } else {
      const double start = now_[stage];
      now_[stage] += duration(action.kind, times_) / schedule_.shape.virtual_stages;
      timeline_.stages[stage].push_back({action, start, now_[stage]});
    }
    ++at_[stage];
    return true;
  }

  const Schedule& schedule_;
  const ActionTimes& times_;
  Channels channels_;
  std::vector<std::vector<double>> sent_;  // per channel, when each message left
  std::vector<size_t> received_;           // per channel, how many were taken
  std::vector<size_t> at_;
  std::vector<double> now_;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const ActionTimes& times) {
  Timeline timeline = Clocks(schedule, times).run();
  for (const auto& spans : timeline.stages) {
    if (spans.empty()) continue;
    timeline.makespan = std::max(timeline.makespan, spans.back().end);  // the first start of all is 0
    timeline.cost = std::max(timeline.cost, spans.back().end - spans.front().start);
  }
  const double work =
      schedule.shape.micro_batches * (times.forward + times.backward_input + times.backward_weight);
  timeline.bubble = timeline.cost > 0 ? (timeline.cost - work) / timeline.cost : 0;
  return timeline;
}

}  // namespace triax
