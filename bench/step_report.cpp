#include "bench/step_report.h"

#include <fmt/ostream.h>

#include "engine/plan.h"

namespace triax {

namespace {

void print(std::ostream& out, const StepReport::Memory& memory) {
  fmt::print(out, "memory        {} bytes allocated at most, {} planned\n", memory.allocated, memory.planned);
  fmt::print(out, "beyond        {:.0f} bytes ({}) of it, beside weights, gradients and moments\n",
             memory.beyond(), human_bytes(memory.beyond()));
  fmt::print(out, "taken         {} bytes ({}) more of the GPU than before the job\n", memory.taken,
             human_bytes(static_cast<double>(memory.taken)));
}

void print_communication(std::ostream& out, const StepReport& report) {
  double held = 0, moving = 0;
  for (const auto& c : report.communication) held += c.held, moving += c.moving;
  fmt::print(out,
             "communication {:.3f} ms of a step of {:.3f} ms a rank's stream stands in it, {:.3f} ms are all "
             "ranks' work (on the GPU's clock)\n",
             1e3 * held, 1e3 * report.clocked_seconds, 1e3 * moving);
  fmt::print(out, "  {:<24} {:>8} {:>12} {:>12} {:>12}\n", "per step", "calls", "MiB sent", "stands ms",
             "work ms");
  for (const auto& c : report.communication)
    fmt::print(out, "  {:<24} {:>8.1f} {:>12.3f} {:>12.3f} {:>12.3f}\n", c.group + " " + c.operation, c.calls,
               c.bytes / (1 << 20), 1e3 * c.held, 1e3 * c.moving);
}

}  // namespace

void print(std::ostream& out, const StepReport& report) {
  fmt::print(out, "step seconds  median {:.4f}  min {:.4f}  max {:.4f}  ({} steps)\n", report.median(),
             report.seconds.front(), report.seconds.back(), report.seconds.size());
  fmt::print(out, "tokens/s      {:.1f}\n", report.tokens_per_second);
  fmt::print(out, "GFLOP/s       {:.1f}  (model FLOPs)\n", report.flops / 1e9);
  fmt::print(out, "GEMM rate     {:.1f}  GFLOP/s before, {:.1f} after, on {}\n", report.gemm_before / 1e9,
             report.gemm_after / 1e9, report.where);
  fmt::print(out, "share         {:.1f} %\n", 100 * report.share());
  if (report.memory) print(out, *report.memory);
  if (!report.communication.empty()) print_communication(out, report);
}

nlohmann::json to_json(const StepReport& report) {
  nlohmann::json all{{"seconds", report.seconds},
                     {"tokens_per_second", report.tokens_per_second},
                     {"flops", report.flops},
                     {"gemm_flops_before", report.gemm_before},
                     {"gemm_flops_after", report.gemm_after},
                     {"share", report.share()}};
  if (report.memory)
    all["memory"] = {{"planned_bytes", report.memory->planned},
                     {"allocated_bytes", report.memory->allocated},
                     {"state_bytes", report.memory->states},
                     {"beyond_bytes", report.memory->beyond()},
                     {"taken_bytes", report.memory->taken}};
  for (const auto& c : report.communication)
    all["communication"].push_back({{"group", c.group},
                                    {"operation", c.operation},
                                    {"calls", c.calls},
                                    {"bytes", c.bytes},
                                    {"held_seconds", c.held},
                                    {"moving_seconds", c.moving}});
  if (!report.communication.empty()) all["clocked_seconds"] = report.clocked_seconds;
  return all;
}

}  // namespace triax
