#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/config.h"
#include "launch/commands.h"
#include "pipeline/simulate.h"

namespace CLI {
class App;
}

namespace triax {

/// Adds the options to the command; `options` outlives the parser.
void add_schedule_options(CLI::App& command, ScheduleOptions& options);

/// A schedule, simulated: one value for what is printed, drawn and written as JSON.
struct SchedulePlan {
  Schedule schedule;
  Timeline timeline;
  std::vector<int> kept;  ///< in_flight()
  std::string times;      ///< where the times come from, in words
  std::string unit;       ///< of the times
};

/// The job's schedule, with the times told, or with times in proportion to the matrix elements of each part
/// of the model, in units of a stage's mean forward.
SchedulePlan plan_schedule(const RunConfig& config, const ScheduleOptions& options);

/// name, stages, virtual_stages, micro_batches, bubble, stage_bubbles, cost, makespan, unit, in_flight.
nlohmann::ordered_json to_json(const SchedulePlan& plan);

/// Draws the schedule into options.svg, with the measured step of options.trace beside it; without
/// options.svg does nothing. Returns what there is to tell about it.
std::string draw_schedule(const SchedulePlan& plan, const ScheduleOptions& options);

/// Prints bubble and activations in flight per stage and the schedule as text, and draws it.
void show_schedule(const SchedulePlan& plan, const ScheduleOptions& options);

/// `triax plan --schedule ...`: a schedule without a job. Returns the exit status.
int plan_schedule_alone(const ScheduleOptions& options, bool json);

}  // namespace triax
