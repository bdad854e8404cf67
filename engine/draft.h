#pragma once

#include <string>
#include <vector>

#include "engine/model_sizes.h"
#include "engine/search.h"

namespace triax {

/// What a new job is drafted from.
struct DraftRequest {
  std::string family = "gpt2", size = "124m", name;  ///< name of the job; empty: family-size
  int ranks = 1;
  ClusterConfig cluster;                       ///< what the ranks compute on
  std::string device = {};                     ///< that it came from, as --device names it; empty: none
  std::string cluster_file = {};               ///< for parallel.cluster; empty: none
  std::vector<std::string> train, validation;  ///< files of data
};

/// A job that trains a published model on so many ranks, with the reasons for what was chosen.
struct Draft {
  RunConfig config;  ///< tensor, pipeline and data resolved
  const ModelSize* size = nullptr;
  GridChoice choice;                 ///< the grid's memory and time
  int grids = 0;                     ///< that fit
  std::vector<std::string> reasons;  ///< sentences
};

/// The published shape, batch and learning rate; steps for 20 tokens per parameter; bf16 on GPUs; and the
/// quickest grid of those that fit by the planner (engine/search.h): without recomputation if one fits, else
/// with selective, else with full; then the largest micro-batch that does not make it slower. On processors
/// the batch is 32 sequences. A usage error when nothing fits.
Draft draft_job(const DraftRequest& request);

/// The draft as a job file, each key with its sentence; `$schema` of the editors' first line is `schema`, a
/// path or address (empty: none).
std::string draft_yaml(const Draft& draft, const DraftRequest& request, const std::string& schema);

}  // namespace triax
