#pragma once

#include <vector>

#include "core/trace.h"
#include "pipeline/simulate.h"

namespace triax {

/// What a pipeline stage can do for one (micro-batch, chunk): the executor's side of a schedule. Implemented
/// by the engine with a model, by tests with sleeps.
class StageOperations {
 public:
  virtual ~StageOperations() = default;
  /// Waits until the buffer that the action's result goes into is free: called before each forward and each
  /// backward or backward_input, so that their own time is work alone.
  virtual void make_room(const Action&) {}
  virtual void recv_forward(const Action& action) = 0;
  virtual void forward(const Action& action) = 0;
  virtual void send_forward(const Action& action) = 0;
  virtual void recv_backward(const Action& action) = 0;
  virtual void backward(const Action& action) = 0;
  virtual void backward_input(const Action& action) = 0;
  virtual void backward_weight(const Action& action) = 0;
  virtual void send_backward(const Action& action) = 0;
};

/// Runs one stage's list of actions, in order. A trace that is on gets a span for each, on the track
/// "pipeline", with the numbers micro_batch and chunk; waits for room are spans named make_room.
void execute(const std::vector<Action>& actions, StageOperations& stage, Trace* trace = nullptr);

/// The work among the spans that execute() has left in a trace: a stage of a measured Timeline.
std::vector<Span> work_of(const Trace& trace);

}  // namespace triax
