#include <fmt/ranges.h>

#include <cstdio>

#include "core/error.h"
#include "engine/job_to_plan.h"
#include "engine/search.h"
#include "launch/commands.h"
#include "launch/plan_json.h"
#include "launch/plan_schedule.h"
#include "model/gpt.h"

namespace triax {

namespace {

double gib(double bytes) {
  return bytes / (1024.0 * 1024 * 1024);
}

std::string layer_ranges(const std::vector<std::pair<int, int>>& chunks) {
  std::vector<std::string> parts;
  for (const auto& [first, end] : chunks)
    parts.push_back(end - first > 1 ? fmt::format("{}..{}", first, end - 1) : std::to_string(first));
  return fmt::format("{}", fmt::join(parts, ","));
}

void print_head(const JobPlan& plan) {
  const RunConfig& c = plan.config;
  const ModelConfig& m = c.model;
  const TrainingConfig& t = c.training;
  const double tokens = static_cast<double>(t.global_batch_size * t.sequence_length);
  fmt::print("{}: {} parameters, {} layers, hidden {}, vocabulary {}\n", c.name, parameter_count(m),
             m.num_hidden_layers, m.hidden_size, m.vocab_size);
  fmt::print("{:.3g} model FLOPs per token, {:.0f} tokens per step\n", flops_per_token(m, t.sequence_length),
             tokens);
  fmt::print("\n{}", group_table(grid_of(c)));
  fmt::print("\n{} micro-batches of {} sequences per data rank\n", plan.micro_batches, t.micro_batch_size);
}

template <class Cell>
void print_row(const JobPlan& plan, const std::string& name, const Cell& cell) {
  fmt::print("\n  {:<14}", name);
  for (size_t s = 0; s < plan.stages.size(); ++s) fmt::print(" {:>16}", cell(s));
}

void print_stages(const JobPlan& plan) {
  fmt::print("\nmemory per rank, bytes");
  print_row(plan, "", [](size_t s) { return fmt::format("stage {}", s); });
  print_row(plan, "layers", [&](size_t s) { return layer_ranges(plan.layers[s]); });
  print_row(plan, "in flight", [&](size_t s) { return plan.stages[s].in_flight; });
  for (size_t line = 0; line < plan.stages[0].memory.size(); ++line)
    print_row(plan, plan.stages[0].memory[line].name,
              [&](size_t s) { return plan.stages[s].memory[line].bytes; });
  print_row(plan, "peak", [&](size_t s) { return plan.stages[s].peak_bytes; });
  print_row(plan, "", [&](size_t s) { return human_bytes(static_cast<double>(plan.stages[s].peak_bytes)); });
  print_row(plan, "GFLOP / step",
            [&](size_t s) { return fmt::format("{:.5g}", plan.stages[s].flops() / 1e9); });
  fmt::print("\n");
}

void print_tensors(const std::vector<PlannedTensors>& tensors) {
  for (const PlannedTensors& t : tensors)
    fmt::print("  {:<40} {:>22} {:<5} x {:<5} {:>16} {:>12}\n", t.name, to_string(t.shape), name_of(t.dtype),
               t.count, t.bytes, human_bytes(static_cast<double>(t.bytes)));
}

// In detail for the stage with the largest peak.
void print_largest(const JobPlan& plan) {
  const size_t s = plan.peak_stage();
  const RankPlan& rank = plan.stages[s];
  fmt::print("\nweights of a rank of stage {}\n", s);
  print_tensors(rank.weights);
  fmt::print("\na slot of stage {}: the activations of one micro-batch, {} bytes, {} at a time\n", s,
             rank.slot_bytes, rank.in_flight);
  if (rank.lent_bytes)
    fmt::print(
        "  {} of these bytes take no memory of their own: they lie where gradients are written later\n",
        rank.lent_bytes);
  for (size_t chunk = 0; chunk < rank.slot_tensors.size(); ++chunk) {
    if (rank.slot_tensors.size() > 1) fmt::print("  chunk {}\n", chunk);
    print_tensors(rank.slot_tensors[chunk]);
  }
}

void print_bytes(const JobPlan& plan) {
  fmt::print("\nbytes that a rank sends per step\n  {:<6} {:<12} {:<16} {:>8} {:>16}\n", "stage", "group",
             "operation", "calls", "bytes");
  for (size_t s = 0; s < plan.stages.size(); ++s)
    for (const auto& [key, entry] : plan.stages[s].bytes_per_step)
      fmt::print("  {:<6} {:<12} {:<16} {:>8} {:>16.0f}\n", s, key.first, name_of(key.second), entry.calls,
                 entry.bytes);
  for (const auto& [key, entry] : plan.stages[0].bytes_per_window)
    fmt::print("  besides, every {} steps, to find stragglers: {} {} of {:.0f} bytes\n",
               plan.config.logging.straggler_window, key.first, name_of(key.second), entry.bytes);
}

void print_fit(const PlanAnswers& answers, const JobPlan& plan) {
  if (answers.device) {
    const DeviceModel& d = *answers.device;
    const double peak = static_cast<double>(bytes_on(plan, d));
    fmt::print("\n{}: {:.1f} GiB for the arenas of a rank; the job's {:.2f} GiB {}\n", d.name, d.memory_gib,
               gib(peak), peak <= d.bytes() ? "fit" : "do NOT fit");
    if (answers.largest_micro_batch)
      fmt::print("the largest micro_batch_size that fits is {}\n", *answers.largest_micro_batch);
    else
      fmt::print("no micro_batch_size fits\n");
  }
  if (answers.largest_model) {
    const RunConfig& c = *answers.largest_model;
    const ModelConfig& m = c.model;
    fmt::print(
        "the largest model of this family that fits has {:.2f} billion parameters: {} layers, hidden {}, {} "
        "heads, "
        "intermediate {}; {:.2f} GiB\n",
        static_cast<double>(parameter_count(m)) / 1e9, m.num_hidden_layers, m.hidden_size,
        m.num_attention_heads, m.intermediate_size,
        gib(static_cast<double>(bytes_on(plan_job(c, &*answers.device), *answers.device))));
  } else if (answers.largest_asked) {
    fmt::print("no model of this family fits\n");
  }
}

void print_choices(const std::vector<GridChoice>& choices, size_t shown) {
  fmt::print("  {:>6} {:>8} {:>6} {:>10} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9}\n", "tensor", "pipeline",
             "data", "peak GiB", "step ms", "compute", "tensor", "bubble", "data", "update", "latency");
  for (size_t i = 0; i < std::min(shown, choices.size()); ++i) {
    const GridChoice& g = choices[i];
    const StepCost& c = g.cost;
    const ParallelConfig& p = g.config.parallel;
    fmt::print(
        "  {:>6} {:>8} {:>6} {:>10.2f} {:>9.2f} {:>9.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.3f}\n",
        p.tensor, p.pipeline, p.data, gib(static_cast<double>(g.peak_bytes)), 1e3 * c.seconds,
        1e3 * c.compute, 1e3 * c.tensor, 1e3 * c.bubble, 1e3 * c.data, 1e3 * c.update, 1e3 * c.latency);
  }
  if (choices.size() > shown) fmt::print("  and {} more\n", choices.size() - shown);
}

void print_search(const GridSearch& search, const ClusterConfig& cluster, int ranks) {
  fmt::print("grids of {} ranks on nodes of {} ({}, {:.0f} GiB), quickest step first\n", ranks,
             cluster.ranks_per_node, cluster.device, cluster.device_model().memory_gib);
  print_choices(search.fitting, 20);
  if (search.fitting.empty()) fmt::print("  none fits\n");
  if (!search.too_large.empty()) {
    fmt::print("need more memory than there is, the least first\n");
    print_choices(search.too_large, 5);
  }
  if (search.refused)
    fmt::print("{} other grids are not legal, for example: {}\n", search.refused, search.first_refusal);
  fmt::print(
      "Estimates: kernels by roofline, messages by alpha + bytes / bandwidth, nothing overlapped; latency is "
      "the\n"
      "part of the step that is alpha (rings of n ranks: 2(n-1) alpha for each all-reduce).\n");
}

// An option of the command line, and whether it was given.
struct Given {
  const char* option;
  bool given;
};

// What would be ignored is refused.
void refuse(const std::vector<Given>& options, const std::string& why) {
  std::vector<std::string> given;
  for (const Given& o : options)
    if (o.given) given.emplace_back(o.option);
  if (!given.empty()) fail_usage("{}: {}", fmt::join(given, ", "), why);
}

void refuse_what_goes_unused(const PlanOptions& o) {
  const ScheduleOptions& s = o.schedule;
  if (o.job.files.empty()) {
    refuse(
        {{"--ranks", o.job.ranks != 0},
         {"--set", !o.job.sets.empty()},
         {"--device", !o.device.empty()},
         {"--cluster", !o.cluster.empty()},
         {"--search", o.search},
         {"--largest", o.largest}},
        "belongs to a job, and --schedule without a job has none; give JOB.yaml in place of --schedule, or "
        "leave it out");
    return;
  }
  refuse({{"--schedule", !s.name.empty()},
          {"--stages", s.stages != 0},
          {"--micro-batches", s.micro_batches != 0},
          {"--virtual-stages", s.virtual_stages != 0}},
         "is for a schedule without a job; with one say --set parallel.schedule, parallel.pipeline, "
         "training.global_batch_size or parallel.virtual_stages");
  if (!o.search) return;
  refuse({{"--device", !o.device.empty()}},
         "--search goes by the times of a cluster; give --cluster FILE with the key device");
  refuse({{"--largest", o.largest}, {"--svg", !s.svg.empty()}, {"--times", !s.times.empty()}},
         "is for the job on one grid, --search lists many; leave --search out, and give parallel.tensor and "
         "parallel.pipeline");
}

// The job, without its data if that is elsewhere.
RunConfig load(const PlanOptions& options, const JobRanks& ranks) {
  std::vector<std::string> absent;
  RunConfig config = load_job_to_plan(options.job.files, options.job.sets, ranks, absent);
  for (const std::string& sentence : absent) fmt::print(stderr, "triax: note: {}\n", sentence);
  return config;
}

int search(const PlanOptions& options) {
  if (options.job.ranks == 0) fail_usage("--search divides --ranks N; give it");
  JobRanks ranks{0, options.job.ranks, options.cluster};
  ranks.leave_grid_open = true;
  const RunConfig config = load(options, ranks);
  const ClusterConfig cluster = cluster_of(config, options.job.ranks);
  const GridSearch found = search_grids(config, options.job.ranks, cluster);
  if (options.json)
    fmt::print("{}\n", search_json(found, options.job.ranks));
  else
    print_search(found, cluster, options.job.ranks);
  return exit_done;
}

}  // namespace

int plan(const PlanOptions& options) {
  const bool job = !options.job.files.empty();
  if (!job && options.schedule.name.empty())
    fail_usage("JOB.yaml is required, or --schedule for a schedule without a job");
  refuse_what_goes_unused(options);
  if (!job) return plan_schedule_alone(options.schedule, options.json);
  if (options.search) return search(options);
  const RunConfig config = load(options, {0, options.job.ranks, options.cluster, options.device});
  PlanAnswers answers;
  answers.largest_asked = options.largest;
  if (!config.parallel.cluster.empty()) {
    const ClusterConfig cluster = cluster_of(config, world_size(config));
    check_tensor_within_node(config, cluster.ranks_per_node);
    answers.device = cluster.device_model();
  }
  if (!options.device.empty()) answers.device = device_named(options.device);
  if (options.largest && !answers.device)
    fail_usage("--largest asks what fits a device: give --device or --cluster");
  const JobPlan plan = plan_job(config, answers.device ? &*answers.device : nullptr);
  if (answers.device) answers.largest_micro_batch = largest_micro_batch(config, *answers.device);
  if (options.largest) answers.largest_model = largest_model(config, *answers.device);
  const SchedulePlan schedule = plan_schedule(config, options.schedule);
  if (options.json) {
    draw_schedule(schedule, options.schedule);
    fmt::print("{}\n", plan_json(plan, schedule, answers));
    return exit_done;
  }
  print_head(plan);
  show_schedule(schedule, options.schedule);
  print_stages(plan);
  print_largest(plan);
  print_bytes(plan);
  print_fit(answers, plan);
  return exit_done;
}

}  // namespace triax
