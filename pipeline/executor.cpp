#include "pipeline/executor.h"

namespace triax {

void execute(const std::vector<Action>& actions, StageOperations& stage) {
  for (const Action& action : actions) {
    switch (action.kind) {
      case ActionKind::recv_forward:
        stage.recv_forward(action);
        break;
      case ActionKind::forward:
        stage.forward(action);
        break;
      case ActionKind::send_forward:
        stage.send_forward(action);
        break;
      case ActionKind::recv_backward:
        stage.recv_backward(action);
        break;
      case ActionKind::backward:
        stage.backward(action);
        break;
      case ActionKind::backward_input:
        stage.backward_input(action);
        break;
      case ActionKind::backward_weight:
        stage.backward_weight(action);
        break;
      case ActionKind::send_backward:
        stage.send_backward(action);
        break;
    }
  }
}

}  // namespace triax
