#include "engine/step_graph.h"

#include "core/error.h"

namespace triax {

StepGraph::StepGraph(Device& device, const std::string& setting, std::string why_not)
    : device_(&device), must_(setting == "on") {
  if (setting == "off") why_not = "training.cuda_graph is off";
  if (why_not.empty() && !device.captures()) why_not = "the device records no calls";
  wanted_ = why_not.empty();
  check(wanted_ || !must_, "training.cuda_graph: on: steps can't be captured: {}; auto would enqueue them",
        why_not);
  news_ = wanted_ ? fmt::format("steps are captured as a CUDA graph after {} steps", warm_up_steps)
                  : "steps are not captured as a CUDA graph: " + why_not;
}

bool StepGraph::run(const std::function<void()>& enqueue, const std::function<void()>& undo) {
  if (graph_) {
    graph_->launch();
    return false;
  }
  if (!wanted_ || plain_steps_ < warm_up_steps) {
    ++plain_steps_;
    enqueue();
    return true;
  }
  try {
    graph_ = device_->capture(enqueue);
  } catch (const Error& error) {
    if (must_)
      fail("training.cuda_graph: on: a step can't be captured: {}; auto would enqueue it instead",
           error.what());
    wanted_ = false;
    news_ = fmt::format("steps are not captured as a CUDA graph: {}", error.what());
    undo();
    enqueue();
    return true;
  }
  news_ = "steps are launched as a CUDA graph from now on";
  graph_->launch();
  return true;
}

}  // namespace triax
