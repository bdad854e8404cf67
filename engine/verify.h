#pragma once

#include <string>
#include <vector>

#include "engine/config.h"

namespace triax {

/// Largest distances that count as agreement (docs: guarantees). For gradients norm(a - b) / max(norm(b),
/// 1e-6 * norm of the whole gradient), for losses relative.
struct VerifyBounds {
  double gradient = 1e-5, loss = 1e-5;
};

/// fp32: those of the guarantees. bf16 rounds each rank's partial sums, so that any grid differs by some
/// percent of a gradient, as much as bf16 itself does from fp32.
VerifyBounds bounds_of(const RunConfig& job);

/// The runs that prove a job: itself, and before it a bf16 job's counterpart in fp32, where a fault can't
/// hide behind rounding.
std::vector<RunConfig> runs_to_verify(const RunConfig& job);

/// What became of one comparison of a grid with one rank.
struct VerifyReport {
  RunConfig job;  ///< shrunk, as it ran on the grid
  VerifyBounds bounds;
  struct Gradient {
    std::string name;
    double error;
  };
  std::vector<Gradient> gradients;                 ///< of the first step, in the model's order
  std::vector<double> losses, losses_on_one_rank;  ///< of every step
  /// A sentence for each rank, group and operation whose counted calls or bytes are not those planned, and
  /// for each rank whose memory is not; at most the first ranks'.
  std::vector<std::string> plan_faults;
  int planned_ranks = 0;  ///< ranks whose plan came true in full

  bool agrees() const;
  /// Gradients out of bounds, and steps whose loss is.
  std::vector<Gradient> differing() const;
  std::vector<size_t> differing_steps() const;
};

/// Trains the job, shrunk, for ten steps on its grid (ranks are threads of this process) and on one rank,
/// from the same seed and random tokens, and compares. A fault of the runs themselves is thrown.
VerifyReport verify(const RunConfig& job);

/// The report in words, a line for each thing compared; the first gradient that differs and by how much.
std::string to_text(const VerifyReport& report);

}  // namespace triax
