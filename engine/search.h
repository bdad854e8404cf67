#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cost.h"

namespace triax {

/// What the largest rank of a job needs of a device's memory.
size_t bytes_on(const JobPlan& plan, const DeviceModel& device);

/// A grid that a job could run on, with its plan's peak and the time its step should take.
struct GridChoice {
  RunConfig config;
  size_t peak_bytes = 0;  ///< of the device's memory, largest rank
  StepCost cost;
};

struct GridSearch {
  std::vector<GridChoice> fitting;    ///< quickest step first
  std::vector<GridChoice> too_large;  ///< legal, but more than a rank's memory; least memory first
  int refused = 0;                    ///< divisions of the ranks that the job's other keys do not allow
  std::string first_refusal;          ///< why, for one of them
};

/// All divisions of `ranks` into tensor x pipeline x data that the job allows with everything else as it is,
/// each planned and its step's time estimated. A degree that is not 0 in the job is kept. Tensor groups cross
/// no node unless parallel.allow_tensor_across_nodes is set.
GridSearch search_grids(const RunConfig& job, int ranks, const ClusterConfig& cluster);

/// The largest training.micro_batch_size with which the job fits the device on every rank and its other
/// keys hold, or none. The global batch stays.
std::optional<int64_t> largest_micro_batch(const RunConfig& job, const DeviceModel& device);

/// The job with the largest model of its family that fits the device on every rank: width and depth grown
/// together, at the job's head size and its ratios of hidden size to layers, of intermediate to hidden size
/// and of heads to key-value heads, then depth alone with what memory is left. None when not even the
/// smallest fits.
std::optional<RunConfig> largest_model(const RunConfig& job, const DeviceModel& device);

/// The cluster that a job names in parallel.cluster, else this host for so many ranks. A usage error when it
/// has fewer ranks than that.
ClusterConfig cluster_of(const RunConfig& job, int ranks);
/// This machine as a cluster of one node for so many ranks: its memory shared out, rates of a processor's
/// core.
ClusterConfig this_host(int ranks);

}  // namespace triax
