#pragma once

#include <ostream>

#include "engine/config.h"

namespace triax {

/// GPT-2 124M, fp32, sequence 256, batch 4, one rank: what `triax bench step` measures without a job.
RunConfig gpt2_124m_job();

/// Times `steps` training steps of a job on random tokens (after one that is not counted), its ranks as
/// threads of this process with `threads` compute threads each, and prints tokens/s, model GFLOP/s, and what
/// share of the machine's GEMM rate (measured before and after, in the same run) that is. With `profile` also
/// what each kernel of rank 0 took (print_profile()).
void bench_step(std::ostream& out, const RunConfig& config, int steps, int threads, bool profile = false);

}  // namespace triax
