#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/plan.h"

namespace triax {

/// Holds a run to its plan: what a rank's steps send, call by call and byte by byte, and the memory they
/// take.
class PlanCheck {
 public:
  /// `recorder` is the rank's, of its world; all of it must outlive this.
  PlanCheck(const RankPlan& plan, Recorder& recorder) : plan_(&plan), recorder_(&recorder) {}

  /// Around the step itself. A step that also does what is not planned (it writes its gradients to a file) is
  /// left out by not ending it. `compared_replicas`: it did so.
  void begin_step() { before_ = recorder_->ledger(); }
  void end_step(int64_t step, bool compared_replicas = false);

  /// Around what is sent once in a window of steps.
  void end_window(int64_t step);

  int64_t steps() const { return steps_; }
  /// Compares the rank's high-water mark too, and returns a sentence for each thing that is not as planned;
  /// of steps the first that differs.
  std::vector<std::string> faults(size_t measured_peak) const;
  /// Planned beside measured: the peak, and what the compared steps sent by group and operation.
  std::string table(size_t measured_peak) const;
  /// Of the compared steps, a list of {"group", "operation", "calls", "planned", "counted" (bytes),
  /// "exposed_seconds", "hidden_seconds"}.
  nlohmann::json communication() const;

 private:
  const RankPlan* plan_;
  Recorder* recorder_;
  Ledger before_, measured_, planned_;
  int64_t steps_ = 0;
  std::vector<std::string> first_fault_;
};

}  // namespace triax
