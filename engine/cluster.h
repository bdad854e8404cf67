#pragma once

#include <string>
#include <vector>

#include "engine/config.h"

namespace triax {

/// What a rank computes on, as far as planning needs it.
struct DeviceModel {
  std::string name;
  double memory_gib = 0;   ///< for the arenas: what the driver reports, less the context and the libraries
  double fp32_tflops = 0;  ///< peak of dense matrix products, 10^12 per second
  double bf16_tflops = 0;
  double memory_bandwidth = 0;  ///< 10^9 bytes per second

  double bytes() const { return memory_gib * 1024 * 1024 * 1024; }
  /// The host itself, whose memory also holds the state that is being written.
  bool is_host() const { return name == "cpu"; }
};

/// h100, h200, a100 and b200, from their data sheets, less 2 GiB of memory for context and libraries.
const std::vector<DeviceModel>& known_devices();
/// One of them by name, or a number of GiB (with the rates of an h100). A usage error lists what it can be.
DeviceModel device_named(const std::string& name_or_gib);

/// A message of S bytes takes alpha + S / bandwidth.
struct Link {
  double alpha = 0;      ///< seconds
  double bandwidth = 0;  ///< bytes per second of one rank, in one direction
};

/// The file of --cluster and parallel.cluster: what a cluster is made of.
struct ClusterConfig {
  int nodes = 0;  ///< 0 is `auto`: as many as the ranks need
  int ranks_per_node = 8;
  std::string device = "h100";  ///< cpu too, with memory, tflops and memory_bandwidth
  double memory = 0;            ///< GiB per rank for the arenas; 0 (null): the device's
  double tflops = 0;            ///< of matrix products in the job's precision; 0 (null): the device's peak
  double memory_bandwidth = 0;  ///< GB/s; 0 (null): the device's
  double alpha_inside = 5;      ///< microseconds per message within a node
  double bandwidth_inside = 450;
  double alpha_between = 10;
  double bandwidth_between = 50;
  bool operator==(const ClusterConfig&) const = default;

  Link inside() const { return {alpha_inside * 1e-6, bandwidth_inside * 1e9}; }
  Link between() const { return {alpha_between * 1e-6, bandwidth_between * 1e9}; }
  /// The device with what the file says over it.
  DeviceModel device_model() const;
};

const FieldTable<ClusterConfig>& fields_of(const ClusterConfig*);

/// Reads a cluster file; a usage error lists all that is wrong with it.
ClusterConfig load_cluster(const std::string& path);

/// Refuses a job whose tensor groups would be spread over nodes of `ranks_per_node` ranks, with the sizes
/// that fit, unless parallel.allow_tensor_across_nodes is set.
void check_tensor_within_node(const RunConfig& config, int ranks_per_node);
/// The tensor degrees that the model allows on a node of so many ranks: "1, 2, 4".
std::string tensor_sizes_within(const RunConfig& config, int ranks_per_node);

/// Whether all of these ranks are on one node, with nodes filled in the order of ranks.
bool on_one_node(const std::vector<int>& ranks, int ranks_per_node);

}  // namespace triax
