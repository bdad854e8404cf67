#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "engine/config.h"

namespace triax {

struct StepOptions {
  int steps = 10;
  int threads = 0;  ///< compute threads per rank; 0: the job's, or cores / ranks
  /// A file of int32 [global batch, sequence + 1], the batch of every step; empty: random.
  std::string tokens;
  bool turns = false;
  bool json = false;     ///< what was found as JSON instead of text
  bool profile = false;  ///< also what each kernel of rank 0 took (print_profile())
};

/// GPT-2 124M, fp32, sequence 256, batch 4, one rank: what `triax bench step` measures without a job.
RunConfig gpt2_124m_job();

/// Times training steps of a job on one batch, from the weights that `triax train` starts it with. Ranks are
/// threads of this process, or the processes that a launcher started, of which rank 0 writes.
///
/// As it is: options.steps steps (after one that is not counted), then tokens/s, model GFLOP/s, and what
/// share of the machine's GEMM rate (in the job's precision, measured before and after, in the same run) that
/// is. On a GPU also its memory beside the plan, and with several ranks what their communication takes on its
/// clock (StepReport).
///
/// With options.turns, for whoever lets several programs take turns (bench/compare): writes a line
/// {"ready": true, "threads": those of a rank}, then reads a number of steps from each line of `in`, trains
/// them and writes a line {"seconds": [..], "losses": [..]}, until `in` ends. Between the turns all ranks
/// sleep. Losses are those before each update.
void bench_step(std::istream& in, std::ostream& out, const RunConfig& config, const StepOptions& options);

}  // namespace triax
