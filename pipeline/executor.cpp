#include "pipeline/executor.h"

#include "pipeline/schedule.h"

namespace triax {

namespace {

void run(const Action& action, StageOperations& stage) {
  switch (action.kind) {
    case ActionKind::recv_forward:
      return stage.recv_forward(action);
    case ActionKind::forward:
      return stage.forward(action);
    case ActionKind::send_forward:
      return stage.send_forward(action);
    case ActionKind::recv_backward:
      return stage.recv_backward(action);
    case ActionKind::backward:
      return stage.backward(action);
    case ActionKind::backward_input:
      return stage.backward_input(action);
    case ActionKind::backward_weight:
      return stage.backward_weight(action);
    case ActionKind::send_backward:
      return stage.send_backward(action);
  }
}

}  // namespace

void execute(const std::vector<Action>& actions, StageOperations& stage, Trace* trace) {
  for (const Action& action : actions) {
    const auto span = [&](std::string_view name) {
      return TraceScope(trace, "pipeline", name,
                        {{"micro_batch", action.micro_batch}, {"chunk", action.chunk}});
    };
    if (is_compute(action.kind) && action.kind != ActionKind::backward_weight) {
      const TraceScope waiting = span("make_room");
      stage.make_room(action);
    }
    const TraceScope working = span(name_of(action.kind));
    run(action, stage);
  }
}

std::vector<Span> work_of(const Trace& trace) {
  std::vector<Span> work;
  for (const Trace::Span& span : trace.spans()) {
    const auto kind = span.track == "pipeline" ? kind_of(span.name) : std::nullopt;
    if (!kind || !is_compute(*kind)) continue;
    Action action{*kind, 0, 0};
    for (const auto& [name, value] : span.numbers)
      (name == "chunk" ? action.chunk : action.micro_batch) = static_cast<int>(value);
    work.push_back({action, span.start, span.end});
  }
  return work;
}

}  // namespace triax
