#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "launch/hosts.h"

namespace triax {

/// The ranks of a job on hosts: consecutive ones on each, in the hosts' order. With the grid's order tp-dp-pp
/// tensor groups then lie inside of hosts, and neighbouring stages on the same host or the next one.
struct RankPlacement {
  std::vector<Host> hosts;  ///< those that get ranks; `slots` is how many
  int ranks() const;
  /// The ranks of the fullest host.
  int most() const;
  bool uniform() const;
};

/// Puts the job's ranks onto the hosts; a host of which no slots are told takes `default_slots`. A host gets
/// whole tensor groups; slots that are left over stay empty. Throws Error(usage) that names the tensor group
/// which would be spread over hosts, unless parallel.allow_tensor_across_nodes is set, or the hosts that are
/// too few, with what would do.
RankPlacement place(const RunConfig& config, const std::vector<Host>& hosts, int default_slots);

/// How many of the job's ranks the hosts could take: whole tensor groups, unless those may be spread.
int capacity(const RunConfig& config, const std::vector<Host>& hosts, int default_slots);

/// A division of the batch that a job can go on with on fewer ranks.
struct DataDegree {
  int data = 0;
  int64_t micro_batch_size = 0;
  bool operator==(const DataDegree&) const = default;
};

/// The largest data degree, at most the job's, whose ranks number at most `ranks` and whose micro-batches
/// make up the global batch, with the largest micro-batch size up to the job's; tensor and pipeline stay.
/// `legal` judges what else the job's rules ask for. None when not even one replica fits.
std::optional<DataDegree> largest_data_degree(const RunConfig& config, int ranks,
                                              const std::function<bool(const DataDegree&)>& legal);

}  // namespace triax
