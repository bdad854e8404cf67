#include "engine/job_schedule.h"

#include <fmt/format.h>

#include "model/gpt.h"

namespace triax {

ScheduleShape schedule_shape(const RunConfig& config) {
  const ParallelConfig& p = config.parallel;
  const TrainingConfig& t = config.training;
  return {p.schedule, p.pipeline, p.virtual_stages,
          static_cast<int>(t.global_batch_size / (t.micro_batch_size * p.data))};
}

std::vector<ActionTimes> times_of_parts(const RunConfig& config) {
  const ParallelConfig& p = config.parallel;
  const std::vector<PartWork> work = part_work(config.model, p.pipeline * p.virtual_stages);
  const bool full = config.training.recompute == "full";
  double forward = 0;
  for (const PartWork& w : work) forward += w.layers + 3 * w.head;
  const double scale = p.pipeline / forward;
  std::vector<ActionTimes> times;
  times.reserve(work.size());
  for (const PartWork& w : work)
    times.push_back({(w.layers + 3 * w.head) * scale, (full ? 3 : 1) * w.layers * scale,
                     (full ? 0 : 1) * w.layers * scale, 0});
  return times;
}

PlannedSchedule planned_schedule(const RunConfig& config) {
  PlannedSchedule plan;
  plan.schedule = make_schedule(schedule_shape(config));
  validate(plan.schedule);
  plan.timeline = simulate(plan.schedule, times_of_parts(config));
  return plan;
}

std::string schedule_heading(const Timeline& timeline) {
  const ScheduleShape& shape = timeline.shape;
  std::string text = fmt::format("{}, {} stage{}", shape.name, shape.stages, shape.stages == 1 ? "" : "s");
  if (shape.virtual_stages > 1) text += fmt::format(" of {} chunks", shape.virtual_stages);
  return text + fmt::format(", {} micro-batch{}: bubble {:.2f} %", shape.micro_batches,
                            shape.micro_batches == 1 ? "" : "es", 100 * timeline.bubble);
}

std::vector<Panel> measured_panels(const MeasuredStep& measured) {
  const Schedule schedule = make_schedule(measured.timeline.shape);
  const std::vector<int> kept = in_flight(schedule);
  const Timeline planned = simulate(schedule, mean_times(measured.timeline));
  return {{planned, "planned, with the measured mean times: " + schedule_heading(planned), kept},
          {measured.timeline,
           fmt::format("measured, step {}: ", measured.step) + schedule_heading(measured.timeline), kept}};
}

}  // namespace triax
