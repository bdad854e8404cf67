#include "engine/plan.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/job.h"
#include "launch/commands.h"
#include "launch/plan_schedule.h"
#include "model/gpt.h"

namespace triax {

namespace {

using Json = nlohmann::ordered_json;

// What a job is before it runs. Ranks of a stage hold parts of equal size, so one rank stands for its stage.
struct JobPlan {
  RunConfig config;
  int64_t micro_batches = 0;
  std::vector<std::vector<std::array<int, 2>>> layers;  // of each stage and chunk, first and end
  std::vector<RankPlan> stages;
  SchedulePlan schedule;
};

JobPlan make_plan(const RunConfig& config, const ScheduleOptions& schedule) {
  JobPlan plan;
  plan.config = config;
  const ParallelConfig& p = config.parallel;
  const TrainingConfig& t = config.training;
  plan.micro_batches = t.global_batch_size / (t.micro_batch_size * p.data);
  const std::vector<int> first = split_layers(config.model, p.pipeline * p.virtual_stages);
  plan.layers.resize(static_cast<size_t>(p.pipeline));
  for (size_t part = 0; part + 1 < first.size(); ++part)
    plan.layers[part % plan.layers.size()].push_back({first[part], first[part + 1]});
  const Grid grid = grid_of(config);
  for (int stage = 0; stage < p.pipeline; ++stage)
    plan.stages.push_back(plan_rank(config, grid.with(0, "pp", stage)));
  plan.schedule = plan_schedule(config, schedule);
  return plan;
}

Json to_json(const JobPlan& plan) {
  const RunConfig& c = plan.config;
  Json json;
  json["ranks"] = world_size(c);
  json["grid"] = {
      {"tensor", c.parallel.tensor}, {"pipeline", c.parallel.pipeline}, {"data", c.parallel.data}};
  json["parameters"] = parameter_count(c.model);
  json["flops_per_token"] = flops_per_token(c.model, c.training.sequence_length);
  json["tokens_per_step"] = c.training.global_batch_size * c.training.sequence_length;
  json["micro_batches"] = plan.micro_batches;
  json["bubble"] = plan.schedule.timeline.bubble;
  json["schedule"] = to_json(plan.schedule);
  size_t peak = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const RankPlan& rank = plan.stages[s];
    Json stage{{"stage", s},
               {"first_rank", rank.rank},
               {"layers", plan.layers[s]},
               {"parameters_per_rank", rank.parameters},
               {"in_flight", rank.in_flight}};
    for (const MemoryLine& line : rank.memory) stage["memory"][line.name] = line.bytes;
    stage["peak_bytes"] = rank.peak_bytes;
    stage["bytes_per_step"] = Json::object();
    for (const auto& [key, entry] : rank.bytes_per_step)
      stage["bytes_per_step"][key.first][std::string(name_of(key.second))] = {{"calls", entry.calls},
                                                                              {"bytes", entry.bytes}};
    json["stages"].push_back(std::move(stage));
    peak = std::max(peak, rank.peak_bytes);
  }
  json["peak_bytes"] = peak;
  json["config"] = Json::parse(to_json(c));
  return json;
}

void print_stages(const JobPlan& plan) {
  fmt::print("\nmemory per rank, bytes\n  {:<14}", "");
  for (size_t s = 0; s < plan.stages.size(); ++s) fmt::print(" {:>16}", fmt::format("stage {}", s));
  fmt::print("\n  {:<14}", "layers");
  for (const auto& chunks : plan.layers) {
    std::string text;
    for (const auto& [begin, end] : chunks)
      text += fmt::format("{}{}", text.empty() ? "" : ",", begin) +
              (end - begin > 1 ? fmt::format("..{}", end - 1) : "");
    fmt::print(" {:>16}", text);
  }
  fmt::print("\n  {:<14}", "in flight");
  for (const RankPlan& rank : plan.stages) fmt::print(" {:>16}", rank.in_flight);
  for (size_t line = 0; line < plan.stages[0].memory.size(); ++line) {
    fmt::print("\n  {:<14}", plan.stages[0].memory[line].name);
    for (const RankPlan& rank : plan.stages) fmt::print(" {:>16}", rank.memory[line].bytes);
  }
  fmt::print("\n  {:<14}", "peak");
  for (const RankPlan& rank : plan.stages) fmt::print(" {:>16}", rank.peak_bytes);
  fmt::print("\n  {:<14}", "");
  for (const RankPlan& rank : plan.stages)
    fmt::print(" {:>16}", human_bytes(static_cast<double>(rank.peak_bytes)));
  fmt::print("\n");
}

void print_bytes(const JobPlan& plan) {
  fmt::print("\nbytes that a rank sends per step\n  {:<6} {:<12} {:<16} {:>8} {:>16}\n", "stage", "group",
             "operation", "calls", "bytes");
  for (size_t s = 0; s < plan.stages.size(); ++s)
    for (const auto& [key, entry] : plan.stages[s].bytes_per_step)
      fmt::print("  {:<6} {:<12} {:<16} {:>8} {:>16.0f}\n", s, key.first, name_of(key.second), entry.calls,
                 entry.bytes);
}

}  // namespace

int plan(const PlanOptions& options) {
  const bool job = !options.job.files.empty();
  if (!job && options.schedule.name.empty())
    fail_usage("JOB.yaml is required, or --schedule for a schedule without a job");
  if (!job) return plan_schedule_alone(options.schedule, options.json);
  if (!options.schedule.name.empty())
    fail_usage("--schedule is for a schedule without a job; say --set parallel.schedule={} for this one",
               options.schedule.name);
  const RunConfig config = load_job(options.job.files, options.job.sets, {0, options.job.ranks});
  const JobPlan plan = make_plan(config, options.schedule);
  if (options.json) {
    draw_schedule(plan.schedule, options.schedule);
    fmt::print("{}\n", to_json(plan).dump(2));
    return exit_done;
  }
  const ModelConfig& m = config.model;
  fmt::print("{}: {} parameters, {} layers, hidden {}, vocabulary {}\n", config.name, parameter_count(m),
             m.num_hidden_layers, m.hidden_size, m.vocab_size);
  fmt::print("{:.3g} model FLOPs per token, {} tokens per step\n",
             flops_per_token(m, config.training.sequence_length),
             config.training.global_batch_size * config.training.sequence_length);
  fmt::print("\n{}", group_table(grid_of(config)));
  fmt::print("\n{} micro-batches of {} sequences per data rank\n", plan.micro_batches,
             config.training.micro_batch_size);
  show_schedule(plan.schedule, options.schedule);
  print_stages(plan);
  print_bytes(plan);
  return exit_done;
}

}  // namespace triax
