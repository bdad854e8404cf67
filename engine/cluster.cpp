#include "engine/cluster.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "core/fields.h"

namespace triax {

const std::vector<DeviceModel>& known_devices() {
  // Memory as the driver reports it (79.6, 140.4, 79.2 and 179 GiB) less 2; dense rates without sparsity,
  // SXM.
  static const std::vector<DeviceModel> devices{{"h100", 77, 67, 989, 3350},
                                                {"h200", 138, 67, 989, 4800},
                                                {"a100", 77, 19.5, 312, 2039},
                                                {"b200", 177, 75, 2250, 8000}};
  return devices;
}

DeviceModel device_named(const std::string& name_or_gib) {
  for (const DeviceModel& d : known_devices())
    if (d.name == name_or_gib) return d;
  char* end = nullptr;
  const double gib = std::strtod(name_or_gib.c_str(), &end);
  std::vector<std::string> names;
  for (const DeviceModel& d : known_devices()) names.push_back(d.name);
  if (name_or_gib.empty() || *end || !(gib > 0) || gib > 1e9)
    fail_usage("device: '{}' is not known; it can be {}, or a number of GiB", name_or_gib,
               fmt::join(names, ", "));
  DeviceModel device = known_devices().front();
  device.name = fmt::format("{} GiB", name_or_gib);
  device.memory_gib = gib;
  return device;
}

DeviceModel ClusterConfig::device_model() const {
  DeviceModel model = device == "cpu" ? DeviceModel{"cpu", 0, 0, 0, 0} : device_named(device);
  if (memory > 0) model.memory_gib = memory;
  if (tflops > 0) model.fp32_tflops = model.bf16_tflops = tflops;
  if (memory_bandwidth > 0) model.memory_bandwidth = memory_bandwidth;
  return model;
}

const FieldTable<ClusterConfig>& fields_of(const ClusterConfig*) {
  static const FieldTable<ClusterConfig> table = [] {
    using C = ClusterConfig;
    FieldTable<C> t;
    t.add("nodes", &C::nodes, "Nodes there are; auto is as many as the ranks need.")
        .zero_is("auto")
        .at_least(1)
        .at_most(1 << 20);
    t.add("ranks_per_node", &C::ranks_per_node,
          "Ranks that share a node; ranks fill one node after the other.")
        .at_least(1)
        .at_most(1 << 20);
    t.add("device", &C::device,
          "What each rank computes on: h100, h200, a100, b200, cpu, or a number of GiB.");
    t.add("memory", &C::memory, "GiB per rank for weights, gradients, optimizer, activations and buffers.")
        .derived("the device's")
        .above(0);
    t.add("tflops", &C::tflops, "Rate of matrix products in the job's precision, 10^12 per second.")
        .derived("the device's peak")
        .above(0);
    t.add("memory_bandwidth", &C::memory_bandwidth, "Of the device's memory, 10^9 bytes per second.")
        .derived("the device's")
        .above(0);
    t.add("alpha_inside", &C::alpha_inside, "Microseconds that a message takes within a node, however short.")
        .at_least(0);
    t.add("bandwidth_inside", &C::bandwidth_inside, "10^9 bytes per second that a rank sends within a node.")
        .above(0);
    t.add("alpha_between", &C::alpha_between, "Microseconds that a message takes between nodes.").at_least(0);
    t.add("bandwidth_between", &C::bandwidth_between,
          "10^9 bytes per second that a rank sends to another node.")
        .above(0);
    return t;
  }();
  return table;
}

ClusterConfig load_cluster(const std::string& path) {
  ClusterConfig cluster;
  FieldReport report;
  const ConfigNode root = read_yaml(path, report.problems);
  if (report.problems.empty()) read_fields(root, cluster, report);
  if (!report.problems.empty())
    fail_usage("the cluster file {}:\n  - {}", path, fmt::join(report.problems, "\n  - "));
  const DeviceModel device = cluster.device_model();
  if (!(device.memory_gib > 0) || !(device.fp32_tflops > 0) || !(device.memory_bandwidth > 0))
    fail_usage("the cluster file {}: device {} needs memory, tflops and memory_bandwidth", path, device.name);
  return cluster;
}

std::string tensor_sizes_within(const RunConfig& config, int ranks_per_node) {
  std::vector<int> fitting;
  const ModelConfig& m = config.model;
  for (int t = 1; t <= ranks_per_node; ++t)
    if (ranks_per_node % t == 0 && m.num_attention_heads % t == 0 && m.intermediate_size % t == 0 &&
        (m.num_key_value_heads % t == 0 || t % m.num_key_value_heads == 0))
      fitting.push_back(t);
  return fmt::format("{}", fmt::join(fitting, ", "));
}

void check_tensor_within_node(const RunConfig& config, int ranks_per_node) {
  const int tensor = config.parallel.tensor;
  if (config.parallel.allow_tensor_across_nodes || ranks_per_node % tensor == 0) return;
  fail_usage(
      "parallel.tensor: {}: a tensor group would be spread over several nodes of {} ranks; tensor can be {}, "
      "or "
      "set parallel.allow_tensor_across_nodes: true",
      tensor, ranks_per_node, tensor_sizes_within(config, ranks_per_node));
}

bool on_one_node(const std::vector<int>& ranks, int ranks_per_node) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int r) { return r / ranks_per_node == ranks.front() / ranks_per_node; });
}

}  // namespace triax
