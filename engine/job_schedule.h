#pragma once

#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/step_trace.h"
#include "pipeline/render.h"
#include "pipeline/schedule.h"
#include "pipeline/validate.h"

namespace triax {

/// Schedule, stages, chunks and micro-batches of a job.
ScheduleShape schedule_shape(const RunConfig& config);

/// Times of each part of the job's model in proportion to its matrix elements, so that an average stage's
/// forward takes 1. A backward's halves cost a forward each; the head's forward is its backward too; full
/// recomputation runs the layers' forward again and both halves at once.
std::vector<ActionTimes> times_of_parts(const RunConfig& config);

/// The job's schedule with those times.
struct PlannedSchedule {
  Schedule schedule;
  Timeline timeline;
};
PlannedSchedule planned_schedule(const RunConfig& config);

/// "1f1b, 2 stages, 4 micro-batches: bubble 12.34 %".
std::string schedule_heading(const Timeline& timeline);

/// A traced step, and above it the plan with the step's mean times and its quickest message; in milliseconds.
std::vector<Panel> measured_panels(const MeasuredStep& measured);

}  // namespace triax
