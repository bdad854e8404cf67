#pragma once

#include <ostream>

namespace triax {

/// `triax bench kernels`: measures this machine's roofs (matrix products, memory), then every CPU kernel on
/// the shapes of GPT-2 124M (4 sequences of 256 tokens), and writes a table of GFLOP/s or GB/s with the share
/// of the roof. Takes some 20 seconds and 900 MB.
void bench_kernels(std::ostream& out, int threads);

}  // namespace triax
