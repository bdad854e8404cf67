#include "pipeline/channels.h"

#include "pipeline/schedule.h"

namespace triax {

Channels::Channels(const Schedule& schedule) : stages_(schedule.shape.stages) {
  if (stages_ == 1) return;
  for (int stage = 0; stage < stages_; ++stage) {
    channels_.push_back({stage, next_stage(schedule.shape, stage), true, {}, {}});
    channels_.push_back({stage, previous_stage(schedule.shape, stage), false, {}, {}});
  }
  for (int stage = 0; stage < stages_; ++stage) {
    const auto& actions = schedule.stages[stage];
    for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
      const int channel = of(stage, actions[i].kind);
      if (channel < 0) continue;
      (is_send(actions[i].kind) ? channels_[channel].sends : channels_[channel].receives).push_back(i);
    }
  }
}

int Channels::of(int stage, ActionKind kind) const {
  if (stages_ == 1) return -1;
  switch (kind) {
    case ActionKind::send_forward:
      return 2 * stage;
    case ActionKind::send_backward:
      return 2 * stage + 1;
    case ActionKind::recv_forward:
      return 2 * ((stage + stages_ - 1) % stages_);
    case ActionKind::recv_backward:
      return 2 * ((stage + 1) % stages_) + 1;
    default:
      return -1;
  }
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}

bool is_receive(ActionKind kind) {
  return kind == ActionKind::recv_forward || kind == ActionKind::recv_backward;
}

bool matches(const ScheduleShape& shape, const Channel& channel, const Action& send, const Action& receive) {
  const int step = channel.forward ? 1 : -1;
  return send.micro_batch == receive.micro_batch &&
         model_part(shape, channel.from, send.chunk) + step == model_part(shape, channel.to, receive.chunk);
}

}  // namespace triax
