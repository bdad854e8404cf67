#include "engine/job_plan.h"

#include <algorithm>

#include "model/gpt.h"

namespace triax {

JobPlan plan_job(const RunConfig& config, const DeviceModel* device) {
  JobPlan plan;
  const bool elsewhere = device && !device->is_host();
  const Kernels gpu = null_cuda_kernels();
  plan.config = config;
  const ParallelConfig& p = config.parallel;
  const TrainingConfig& t = config.training;
  plan.micro_batches = t.global_batch_size / (t.micro_batch_size * p.data);
  const Grid grid = grid_of(config);
  const std::vector<int> first = split_layers(config.model, p.pipeline * p.virtual_stages);
  for (int stage = 0; stage < p.pipeline; ++stage) {
    plan.stages.push_back(plan_rank(config, grid.with(0, "pp", stage), elsewhere ? &gpu : nullptr));
    auto& layers = plan.layers.emplace_back();
    for (size_t part = static_cast<size_t>(stage); part + 1 < first.size();
         part += static_cast<size_t>(p.pipeline))
      layers.emplace_back(first[part], first[part + 1]);
  }
  return plan;
}

size_t JobPlan::peak_stage() const {
  const auto largest = std::max_element(
      stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  return static_cast<size_t>(largest - stages.begin());
}

size_t JobPlan::peak_bytes() const {
  return stages.at(peak_stage()).peak_bytes;
}

}  // namespace triax
