#pragma once

#include <string>
#include <vector>

#include "engine/config.h"

namespace triax {

/// What `triax launch --slurm` asks the cluster for.
struct SlurmOptions {
  int nodes = 0;           ///< 0: as few as ranks_per_node allows
  int ranks_per_node = 0;  ///< 0: ranks divided by nodes
  int cpus_per_task = 0;   ///< 0: Slurm's default
  std::string time;        ///< Slurm's notation; empty: the partition's default
  std::string partition, account;
  std::vector<std::string> sbatch_args;  ///< more lines of #SBATCH, "--gres=gpu:8"
  int stop_before = 120;  ///< seconds before the end of the time when a checkpoint is asked for
};

/// How the ranks of a job lie on nodes that are all alike. With `elastic` the job also starts on fewer nodes.
struct SlurmShape {
  int nodes = 1, least_nodes = 1, ranks_per_node = 1;
};

/// Throws Error(usage) with what would do when the ranks do not divide among the nodes, or a tensor group
/// would be spread over nodes (unless parallel.allow_tensor_across_nodes is set).
SlurmShape slurm_shape(const SlurmOptions& options, const RunConfig& config, bool elastic);

/// A batch script that runs `line` (the words of a `triax launch`) inside of the allocation: requeued when a
/// node fails, sent SIGUSR1 before its time is over, its output appended to <folder>/slurm-<job>.out.
std::string batch_script(const SlurmOptions& options, const SlurmShape& shape, const std::string& name,
                         const std::string& folder, const std::vector<std::string>& line);

}  // namespace triax
