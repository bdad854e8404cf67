#include "engine/cost.h"

#include <algorithm>
#include <cmath>

#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace triax {

namespace {

struct Seconds {
  double total = 0, latency = 0;
  Seconds& operator+=(const Seconds& o) {
    total += o.total;
    latency += o.latency;
    return *this;
  }
};

// Messages that a rank waits for one after the other in a call.
double hops(CommOp op, int n) {
  switch (op) {
    case CommOp::all_reduce:
      return 2.0 * (n - 1);
    case CommOp::all_gather:
    case CommOp::reduce_scatter:
      return n - 1;
    case CommOp::broadcast:
    case CommOp::barrier:
      return std::ceil(std::log2(n));
    case CommOp::send:
      return 1;
    default:
      return 0;
  }
}

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.rfind(prefix, 0) == 0;
}

enum class Kind { tensor, pipeline, data };

Kind kind_of(const std::string& group) {
  if (starts_with(group, "tp") && group != "tp-copies") return Kind::tensor;
  return starts_with(group, "pp") ? Kind::pipeline : Kind::data;
}

// One rank's messages of a kind in one step.
Seconds messages(const RankPlan& rank, const ClusterConfig& cluster, int world, Kind kind) {
  Seconds sum;
  for (const auto& [key, entry] : rank.bytes_per_step) {
    const auto& [group, op] = key;
    if (kind_of(group) != kind) continue;
    const auto found = rank.groups.find(group);
    const bool whole = found == rank.groups.end();  // the world
    const int size = whole ? world : static_cast<int>(found->second.size());
    const bool inside =
        whole ? world <= cluster.ranks_per_node : on_one_node(found->second, cluster.ranks_per_node);
    const Link link = inside ? cluster.inside() : cluster.between();
    const double latency = static_cast<double>(entry.calls) * hops(op, size) * link.alpha;
    sum += {entry.bytes / link.bandwidth + latency, latency};
  }
  return sum;
}

// Work that is done once per step, after the last backward.
bool after_backward(std::string_view kernel) {
  return kernel == "adamw" || kernel == "squared_norm" || kernel == "add" || kernel == "cast" ||
         kernel == "normalise_sums" || kernel == "decide_update";
}

double kernels(const RankPlan& rank, double rate, double bandwidth, bool after) {
  double sum = 0;
  for (const PlannedWork& w : rank.work)
    if (after_backward(w.kernel) == after)
      sum += static_cast<double>(w.calls) * std::max(w.flops / rate, w.bytes / bandwidth);
  return sum;
}

}  // namespace

double matmul_rate(const DeviceModel& device, const RunConfig& config) {
  return 1e12 * (config.training.precision == "bf16" ? device.bf16_tflops : device.fp32_tflops);
}

StepCost step_cost(const JobPlan& plan, const ClusterConfig& cluster) {
  const DeviceModel device = cluster.device_model();
  const double rate = matmul_rate(device, plan.config), bandwidth = device.memory_bandwidth * 1e9;
  const ParallelConfig& p = plan.config.parallel;
  const int world = p.tensor * p.pipeline * p.data;
  StepCost cost;
  Seconds pipeline;
  for (const RankPlan& rank : plan.stages) {
    const double compute = kernels(rank, rate, bandwidth, false);
    const Seconds tensor = messages(rank, cluster, world, Kind::tensor);
    if (compute + tensor.total > cost.compute + cost.tensor) {
      cost.compute = compute;
      cost.tensor = tensor.total;
      cost.latency = tensor.latency;
    }
    const Seconds sends = messages(rank, cluster, world, Kind::pipeline);
    if (sends.total > pipeline.total) pipeline = sends;
  }
  Seconds data;
  for (const RankPlan& rank : plan.stages) {
    const Seconds mine = messages(rank, cluster, world, Kind::data);
    if (mine.total > data.total) data = mine;
    cost.update = std::max(cost.update, kernels(rank, rate, bandwidth, true));
  }
  cost.data = data.total;
  cost.latency += data.latency + pipeline.latency;

  const double busy = cost.compute + cost.tensor;
  if (p.pipeline > 1) {
    const double third = busy / static_cast<double>(plan.micro_batches) / 3;
    // A stage sends one message per micro-batch in each direction.
    const double message = pipeline.total / static_cast<double>(2 * plan.micro_batches * p.virtual_stages);
    const ScheduleShape shape{p.schedule, p.pipeline, p.virtual_stages, static_cast<int>(plan.micro_batches)};
    cost.bubble = simulate(make_schedule(shape), {third, third, third, message}).makespan - busy;
  }
  cost.seconds = cost.compute + cost.tensor + cost.bubble + cost.data + cost.update;
  return cost;
}

}  // namespace triax
