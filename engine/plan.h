#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/recorder.h"
#include "engine/trainer.h"

namespace triax {

/// What one rank of a job will use, found by running the step of that rank on a device that computes nothing.
struct RankPlan {
  int rank = 0;
  std::vector<MemoryLine> memory;  ///< as Trainer::memory()
  size_t scratch_bytes = 0;        ///< capacity that Trainer's constructor wants
  size_t peak_bytes = 0;
  int64_t parameters = 0;  ///< elements of weights in memory, padding included
  /// (group, operation) -> calls and bytes of one training step.
  std::map<std::pair<std::string, CommOp>, Recorder::Entry> bytes_per_step;
  int in_flight = 0;  ///< micro-batches whose activations are kept at most
};

RankPlan plan_rank(const RunConfig& config, int rank);

/// The rows "what: bytes" of a rank, as printed before step 0.
std::string memory_table(const std::vector<MemoryLine>& memory);
/// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

}  // namespace triax
