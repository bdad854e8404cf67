#include "launch/plan_schedule.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "engine/job_schedule.h"
#include "pipeline/render.h"
#include "pipeline/schedule.h"
#include "pipeline/validate.h"

namespace triax {

namespace {

using Json = nlohmann::ordered_json;

ActionTimes parse_times(const std::string& text) {
  std::vector<double> values;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    double value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || !std::isfinite(value) || value < 0 || (stop != end && *stop != ',')) break;
    values.push_back(value);
    at = stop == end ? end : stop + 1;
  }
  if (at != end || text.empty() || text.back() == ',' || values.size() < 3 || values.size() > 4)
    fail_usage(
        "--times {}: wants the milliseconds of a forward, of both halves of its backward and, if it is not "
        "0, "
        "of a message, none negative, for example --times 18.5,18.1,9.3,0.6",
        text);
  return {values[0], values[1], values[2], values.size() > 3 ? values[3] : 0};
}

std::string describe(const ActionTimes& t) {
  return fmt::format("F {:g} ms, B {:g} ms, W {:g} ms, a message {:g} ms", t.forward, t.backward_input,
                     t.backward_weight, t.message);
}

SchedulePlan simulated(const ScheduleShape& shape, const ActionTimes& times) {
  SchedulePlan plan;
  plan.schedule = make_schedule(shape);
  validate(plan.schedule);
  plan.timeline = simulate(plan.schedule, times);
  plan.kept = in_flight(plan.schedule);
  plan.times = describe(times);
  plan.unit = "ms";
  return plan;
}

}  // namespace

std::string draw_schedule(const SchedulePlan& plan, const ScheduleOptions& options) {
  if (options.svg.empty()) return "";
  std::vector<Panel> panels;
  std::string unit = plan.unit, told;
  if (options.trace.empty()) {
    panels.push_back({plan.timeline, "planned: " + schedule_heading(plan.timeline), plan.kept});
  } else {
    const MeasuredStep measured = read_traces(options.trace);
    const ScheduleShape &ours = plan.schedule.shape, &theirs = measured.timeline.shape;
    if (ours != theirs)
      fail_usage(
          "--trace {}: measured was {} with {} stages of {} chunks and {} micro-batches; planned is {} "
          "with {} stages of {} chunks and {} micro-batches",
          options.trace, theirs.name, theirs.stages, theirs.virtual_stages, theirs.micro_batches, ours.name,
          ours.stages, ours.virtual_stages, ours.micro_batches);
    panels = measured_panels(measured);
    told = fmt::format(
        "step {} measured: bubble {:.2f} %; planned with its mean times and its quickest message: {:.2f} %\n",
        measured.step, 100 * measured.timeline.bubble, 100 * panels.front().timeline.bubble);
    unit = "ms";
  }
  errno = 0;
  std::ofstream file(options.svg, std::ios::trunc);
  file << render_svg(panels, unit);
  const bool written = file.flush().good();
  check(written, "can't write {}: {}", options.svg, std::strerror(errno));
  return told + fmt::format("drawn in {}\n", options.svg);
}

void add_schedule_options(CLI::App& command, ScheduleOptions& options) {
  const std::string group = "Schedule";
  command.add_option("--schedule", options.name, "a schedule alone, without a job: gpipe, 1f1b, ...")
      ->group(group);
  command.add_option("--stages", options.stages, "its pipeline stages")
      ->check(CLI::Range(1, 1 << 16))
      ->group(group);
  command.add_option("--micro-batches", options.micro_batches, "its micro-batches")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command.add_option("--virtual-stages", options.virtual_stages, "its model chunks per stage")
      ->check(CLI::Range(1, 1 << 16))
      ->group(group);
  command
      .add_option("--times", options.times,
                  "milliseconds of a stage's forward, both halves of its backward, and a message")
      ->type_name("F,B,W[,C]")
      ->group(group);
  command.add_option("--svg", options.svg, "draw the schedule into this file")->group(group);
  command
      .add_option("--trace", options.trace,
                  "a run with logging.trace: its step is drawn beside the plan, with the measured times")
      ->needs("--svg")
      ->group(group);
}

SchedulePlan plan_schedule(const RunConfig& config, const ScheduleOptions& options) {
  const ScheduleShape shape = schedule_shape(config);
  if (!options.times.empty()) return simulated(shape, parse_times(options.times));
  SchedulePlan plan = simulated(shape, {});
  plan.timeline = simulate(plan.schedule, times_of_parts(config));
  plan.times = "times by matrix elements, messages free";
  plan.unit = "F";
  return plan;
}

Json to_json(const SchedulePlan& plan) {
  const ScheduleShape& shape = plan.schedule.shape;
  return {{"schedule", shape.name},
          {"stages", shape.stages},
          {"virtual_stages", shape.virtual_stages},
          {"micro_batches", shape.micro_batches},
          {"bubble", plan.timeline.bubble},
          {"stage_bubbles", plan.timeline.stage_bubbles},
          {"cost", plan.timeline.cost},
          {"makespan", plan.timeline.makespan},
          {"unit", plan.unit},
          {"in_flight", plan.kept}};
}

void show_schedule(const SchedulePlan& plan, const ScheduleOptions& options) {
  const auto& idle = plan.timeline.stage_bubbles;
  fmt::print("schedule {} ({})\n", schedule_heading(plan.timeline), plan.times);
  const auto [least, most] = std::minmax_element(idle.begin(), idle.end());
  if (*most - *least > 5e-5) {  // uneven stages
    fmt::print("  idle per stage, %:");
    for (double share : idle) fmt::print(" {:.2f}", 100 * share);
    fmt::print("\n");
  }
  constexpr int columns = 120, blocks = 4;
  fmt::print("\n{}", render_text(plan.schedule, columns, blocks));
  fmt::print("\n{}", draw_schedule(plan, options));
}

int plan_schedule_alone(const ScheduleOptions& options, bool json) {
  if (options.stages == 0 || options.micro_batches == 0)
    fail_usage("--schedule {} without a job also wants --stages and --micro-batches", options.name);
  constexpr int64_t most = int64_t{1} << 22;
  const int virtual_stages = std::max(1, options.virtual_stages);
  if (const int64_t work = int64_t{options.stages} * virtual_stages * options.micro_batches; work > most)
    fail_usage("stages * virtual-stages * micro-batches = {}; at most {} are simulated", work, most);
  const ActionTimes times = options.times.empty() ? ActionTimes{} : parse_times(options.times);
  const SchedulePlan plan =
      simulated({options.name, options.stages, virtual_stages, options.micro_batches}, times);
  if (json) {
    Json out = to_json(plan);
    out["times"] = {{"forward", times.forward},
                    {"backward_input", times.backward_input},
                    {"backward_weight", times.backward_weight},
                    {"message", times.message}};
    draw_schedule(plan, options);
    fmt::print("{}\n", out.dump(2));
    return exit_done;
  }
  show_schedule(plan, options);
  return exit_done;
}

}  // namespace triax
