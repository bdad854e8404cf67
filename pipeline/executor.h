#pragma once

#include <vector>

#include "pipeline/action.h"

namespace triax {

/// What a pipeline stage can do for one (micro-batch, chunk): the executor's side of a schedule. Implemented
/// by the engine with a model, by tests with sleeps.
class StageOperations {
 public:
  virtual ~StageOperations() = default;
  virtual void recv_forward(const Action& action) = 0;
  virtual void forward(const Action& action) = 0;
  virtual void send_forward(const Action& action) = 0;
  virtual void recv_backward(const Action& action) = 0;
  virtual void backward(const Action& action) = 0;
  virtual void backward_input(const Action& action) = 0;
  virtual void backward_weight(const Action& action) = 0;
  virtual void send_backward(const Action& action) = 0;
};

/// Runs one stage's list of actions, in order.
void execute(const std::vector<Action>& actions, StageOperations& stage);

}  // namespace triax
