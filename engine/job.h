#pragma once

#include <string>
#include <vector>

#include "core/config_tree.h"
#include "engine/config.h"

namespace triax {

/// Where a job's ranks come from.
struct JobRanks {
  int launched = 0;          ///< processes that mpirun or srun started; 0: none
  int requested = 0;         ///< --ranks; 0: not given
  std::string cluster = {};  ///< --cluster, over the job's parallel.cluster; empty: not given
  std::string device = {};   ///< --device, which says too little to choose a grid by; empty: not given
  /// For a search of grids: tensor, pipeline and data stay 0, rules that depend on them are left out.
  bool leave_grid_open = false;
};

/// Reads a job: files merged left to right, then the `key=value` sets; defaults, paths and `data: auto` are
/// resolved. Its world size (tensor * pipeline * data) is the launcher's, else --ranks, else that of the file
/// with `auto` as 1. Throws Error(usage) that lists every violation, each with the values that would do;
/// nothing but the files' sizes is looked at before that.
RunConfig load_job(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                   const JobRanks& ranks);

/// The same without throwing: violations are added to `problems`.
RunConfig load_job(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                   const JobRanks& ranks, std::vector<std::string>& problems);

/// Throws Error(usage) that lists the problems; nothing when there are none.
void refuse(const std::vector<std::string>& problems);

/// The effective configuration as a document: what is stored in the run folder and in checkpoints.
std::string to_yaml(const RunConfig& config);
/// Reads what to_yaml() wrote; nothing is resolved or looked up, problems are faults.
RunConfig config_from_yaml(const std::string& text, const std::string& source);
std::string to_json(const RunConfig& config);
/// JSON Schema of job files, for editors.
std::string job_schema();

/// tensor * pipeline * data.
int world_size(const RunConfig& config);
/// training.threads, or this host's cores divided by the job's ranks on it, at least 1.
int compute_threads(const RunConfig& config, int local_size);

}  // namespace triax
