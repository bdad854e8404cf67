#pragma once

#include <cstdint>
#include <ostream>

namespace triax {

struct CollectivesOptions {
  int ranks = 0;                         ///< 0: the launcher's, else as many threads as cores
  int64_t max_bytes = int64_t{1} << 26;  ///< largest message
  double seconds = 0.1;                  ///< spent on each measurement
  bool json = false;
};

/// `triax bench collectives`: times all_reduce, all_gather, reduce_scatter and send/recv against group size
/// (powers of two, and all ranks) and message size (8 bytes to max_bytes in steps of eight), fits alpha and
/// bandwidth of the ring model to each operation, and prints measurement and fit side by side. The lines
/// "alpha" and "bandwidth" are what a cluster's description wants. Rank 0 writes to `out`.
void bench_collectives(std::ostream& out, const CollectivesOptions& options);

}  // namespace triax
