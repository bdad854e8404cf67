#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/device.h"

namespace triax {

/// A step's calls on a device: enqueued one by one, or, where they can be captured, enqueued so in the first
/// steps (which make what is made once: plans of products, workspaces), captured in the next one and from
/// then on launched as one graph. Shapes and addresses of a training step never change in a run, so that one
/// capture is enough; evaluations between steps use the same memory and are enqueued.
class StepGraph {
 public:
  static constexpr int warm_up_steps = 2;

  /// `setting`: training.cuda_graph. `why_not`: why the job's steps can't be captured; empty where they can.
  StepGraph(Device& device, const std::string& setting, std::string why_not);

  /// Runs `enqueue` or what was captured of it. When the capture fails, nothing has been enqueued: `undo` is
  /// to bring back what the host has noted, and the step and all later ones are enqueued; with the setting
  /// `on` that is a fault. Returns false when a graph was launched without running `enqueue`.
  bool run(const std::function<void()>& enqueue, const std::function<void()>& undo);

  /// A sentence for the log when something has changed since the last call, first what is going to be done;
  /// else empty.
  std::string news() { return std::exchange(news_, ""); }

 private:
  Device* device_;
  bool wanted_, must_;
  int plain_steps_ = 0;
  std::unique_ptr<DeviceGraph> graph_;
  std::string news_;
};

}  // namespace triax
