#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ledger.h"
#include "engine/trainer.h"

namespace triax {

/// Tensors of one name, layers.0 and layers.1 taken together as layers.*, of one shape.
struct PlannedTensors {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  int64_t count = 0;
  size_t bytes = 0;  ///< of all of them
};

/// Calls of one kernel with the same work, in one step.
struct PlannedWork {
  std::string_view kernel;
  double flops = 0, bytes = 0;  ///< of each call
  int64_t calls = 0;
};

/// What one rank of a job will use, found by running the step of that rank on a device that computes nothing.
struct RankPlan {
  int rank = 0;
  std::vector<MemoryLine> memory;  ///< as Trainer::memory()
  size_t scratch_bytes = 0;        ///< capacity that Trainer's constructor wants
  size_t peak_bytes = 0;
  int64_t parameters = 0;               ///< elements of weights in memory, padding included
  std::vector<PlannedTensors> weights;  ///< by name
  Ledger bytes_per_step;                ///< of one training step
  Ledger bytes_per_comparison;          ///< of logging.check_replicas, in the steps that compare
  Ledger bytes_per_window;              ///< besides, once in logging.straggler_window steps
  int in_flight = 0;                    ///< slots: micro-batches whose activations are kept at most
  size_t slot_bytes = 0;                ///< of one of them
  size_t lent_bytes = 0;  ///< of these, bytes that lie in the memory of gradients that are written later
  /// What a slot holds, for each chunk of this stage; a slot is as large as the largest.
  std::vector<std::vector<PlannedTensors>> slot_tensors;
  std::vector<PlannedWork> work;                   ///< of one training step
  std::map<std::string, std::vector<int>> groups;  ///< members of this rank's groups, by name

  /// The peak without what lies in the host's memory where the device is not the host (MemoryLine::on_host):
  /// what the rank's Device allocates (DeviceMemoryUse::most). A GPU rounds each block up to its pages.
  size_t device_bytes() const;
  Ledger bytes_of_step(bool compares_replicas) const;
  /// Of the matrix products and the attention of one step, as the kernels are called: with padding and
  /// whatever is computed twice.
  double flops() const;
};

/// Those that decide what a job's device needs, without asking it.
Kernels planning_kernels(const RunConfig& config);
/// `kernels`: those that the rank is to compute with; null: planning_kernels().
RankPlan plan_rank(const RunConfig& config, int rank, const Kernels* kernels = nullptr);

/// The rows "what: bytes" of a rank, as printed before step 0.
std::string memory_table(const std::vector<MemoryLine>& memory);
/// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

}  // namespace triax
