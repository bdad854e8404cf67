#include "engine/search.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "engine/legal.h"
#include "model/gpt.h"

namespace triax {

namespace {

// Why a job can't be, or nothing.
std::string first_problem(const RunConfig& config) {
  FieldReport report;
  report.given.insert("model.num_key_value_heads");  // resolved by now
  check_legal(config, 0, "", report);
  return report.problems.empty() ? "" : report.problems.front();
}

bool fits(const RunConfig& job, const DeviceModel& device) {
  return first_problem(job).empty() &&
         static_cast<double>(bytes_on(plan_job(job, &device), device)) <= device.bytes();
}

// The last number from `first`, which is good, on that is; bad ones are followed by bad ones.
int64_t last_that(int64_t first, const std::function<bool(int64_t)>& is_good) {
  int64_t step = 1;
  while (is_good(first + step)) first += step, step *= 2;
  for (; step > 0; step /= 2)
    if (is_good(first + step)) first += step;
  return first;
}

bool allows(int asked, int degree) {
  return asked == 0 || asked == degree;
}

}  // namespace

size_t bytes_on(const JobPlan& plan, const DeviceModel& device) {
  size_t most = 0;
  for (const RankPlan& rank : plan.stages)
    most = std::max(most, device.is_host() ? rank.peak_bytes : rank.device_bytes());
  return most;
}

GridSearch search_grids(const RunConfig& job, int ranks, const ClusterConfig& cluster) {
  GridSearch found;
  const DeviceModel device = cluster.device_model();
  const auto refuse = [&](const std::string& why) {
    if (found.refused++ == 0) found.first_refusal = why;
  };
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor || !allows(job.parallel.tensor, tensor)) continue;
    for (int pipeline = 1; pipeline <= ranks / tensor; ++pipeline) {
      if (ranks / tensor % pipeline || !allows(job.parallel.pipeline, pipeline) ||
          !allows(job.parallel.data, ranks / tensor / pipeline))
        continue;
      GridChoice choice{job, 0, {}};
      ParallelConfig& p = choice.config.parallel;
      p.tensor = tensor;
      p.pipeline = pipeline;
      p.data = ranks / tensor / pipeline;
      if (!p.allow_tensor_across_nodes && cluster.ranks_per_node % tensor) {
        refuse(fmt::format("tensor {} would cross nodes of {} ranks", tensor, cluster.ranks_per_node));
      } else if (const std::string problem = first_problem(choice.config); !problem.empty()) {
        refuse(problem);
      } else {
        const JobPlan plan = plan_job(choice.config, &device);
        choice.peak_bytes = bytes_on(plan, device);
        choice.cost = step_cost(plan, cluster);
        (static_cast<double>(choice.peak_bytes) <= device.bytes() ? found.fitting : found.too_large)
            .push_back(std::move(choice));
      }
    }
  }
  // Stable: of equals the one with the smaller tensor and pipeline degree.
  std::stable_sort(found.fitting.begin(), found.fitting.end(),
                   [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
  std::stable_sort(found.too_large.begin(), found.too_large.end(),
                   [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  return found;
}

std::optional<int64_t> largest_micro_batch(const RunConfig& job, const DeviceModel& device) {
  const int64_t share = job.training.global_batch_size / job.parallel.data;
  for (int64_t size = share; size >= 1; --size) {
    if (share % size) continue;
    RunConfig candidate = job;
    candidate.training.micro_batch_size = size;
    if (fits(candidate, device)) return size;
  }
  return std::nullopt;
}

std::optional<RunConfig> largest_model(const RunConfig& job, const DeviceModel& device) {
  const ModelConfig& m = job.model;
  const int64_t head = m.hidden_size / m.num_attention_heads,
                group = m.num_attention_heads / m.num_key_value_heads;
  // Widths come in steps that keep heads, key-value heads and intermediate size divisible as the job's are.
  const int64_t unit = int64_t{job.parallel.tensor} * group;
  const auto model_of = [&](int64_t k) {
    RunConfig c = job;
    c.model.num_attention_heads = k * unit;
    c.model.num_key_value_heads = k * unit / group;
    c.model.hidden_size = c.model.num_attention_heads * head;
    const double scale = static_cast<double>(c.model.hidden_size) / static_cast<double>(m.hidden_size);
    const int64_t t = job.parallel.tensor;
    c.model.intermediate_size =
        std::max<int64_t>(
            std::llround(static_cast<double>(m.intermediate_size) * scale / static_cast<double>(t)), 1) *
        t;
    c.model.num_hidden_layers =
        std::max<int64_t>(std::llround(static_cast<double>(m.num_hidden_layers) * scale),
                          int64_t{job.parallel.pipeline} * job.parallel.virtual_stages);
    return c;
  };
  const auto fits_at = [&](int64_t k) { return fits(model_of(k), device); };
  if (!fits_at(1)) return std::nullopt;
  RunConfig best = model_of(last_that(1, fits_at));
  best.model.num_hidden_layers = last_that(best.model.num_hidden_layers, [&](int64_t layers) {
    RunConfig deeper = best;
    deeper.model.num_hidden_layers = layers;
    return fits(deeper, device);
  });
  return best;
}

ClusterConfig cluster_of(const RunConfig& job, int ranks) {
  if (job.parallel.cluster.empty()) return this_host(ranks);
  ClusterConfig cluster = load_cluster(job.parallel.cluster);
  if (cluster.nodes && int64_t{cluster.nodes} * cluster.ranks_per_node < ranks)
    fail_usage("{} ranks are more than the {} nodes of {} ranks of {}; ranks can be at most {}", ranks,
               cluster.nodes, cluster.ranks_per_node, job.parallel.cluster,
               int64_t{cluster.nodes} * cluster.ranks_per_node);
  return cluster;
}

ClusterConfig this_host(int ranks) {
  ClusterConfig host;
  host.nodes = 1;
  host.device = "cpu";
  host.ranks_per_node = ranks;
  const double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  host.memory = bytes / ranks / (1024.0 * 1024 * 1024);
  host.tflops = 0.1;
  host.memory_bandwidth = 10;
  host.alpha_inside = 10;
  host.bandwidth_inside = 5;
  return host;
}

}  // namespace triax
