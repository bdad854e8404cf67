#pragma once

#include <optional>
#include <string>

#include "engine/search.h"
#include "launch/plan_schedule.h"

namespace triax {

/// What `triax plan` was asked besides the plan itself.
struct PlanAnswers {
  std::optional<DeviceModel> device;
  std::optional<int64_t> largest_micro_batch;  ///< that fits the device; none: not even one sequence
  bool largest_asked = false;
  std::optional<RunConfig> largest_model;  ///< none: not even the smallest of the family fits
};

/// What `triax plan --json` prints: derived values, per stage and per rank of it, and the effective job.
std::string plan_json(const JobPlan& plan, const SchedulePlan& schedule, const PlanAnswers& answers);
/// What `triax plan --search --json` prints: all grids that fit, best first, with their estimates in seconds.
std::string search_json(const GridSearch& search, int ranks);

}  // namespace triax
