#pragma once

#include <utility>
#include <vector>

#include "engine/cluster.h"
#include "engine/plan.h"

namespace triax {

/// What a job is before it runs. The ranks of a stage hold parts of equal size and send equal bytes, so that
/// one rank stands for its stage.
struct JobPlan {
  RunConfig config;
  int64_t micro_batches = 0;
  std::vector<RankPlan> stages;                          ///< of each stage's first rank
  std::vector<std::vector<std::pair<int, int>>> layers;  ///< of each stage: [first, end) of its chunks

  /// The largest of all ranks, and the stage that has it.
  size_t peak_bytes() const;
  size_t peak_stage() const;
};

/// As this host runs it, or as GPUs take memory when `device` is not this host: what a layer works in depends
/// on its kernels (Kernels::product_depth, fuses_gelu, workspace_bytes).
JobPlan plan_job(const RunConfig& config, const DeviceModel* device = nullptr);

}  // namespace triax
