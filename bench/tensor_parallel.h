#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

namespace triax {

struct TensorParallelOptions {
  int ranks = 0;                                  ///< 0: the launcher's, else as many threads as cores
  std::vector<int64_t> hidden{256, 512, 1024};    ///< h
  std::vector<int64_t> tokens{256, 4096, 32768};  ///< s * b; 32768 x 1024 in fp32 is a message of 128 MiB
  double seconds = 0.2;                           ///< spent on each measurement
  bool json = false;
};

/// One point of the sweep: the forward of a tensor-parallel MLP, h to 4h by a column-parallel product, 4h to
/// h by a row-parallel one, and the all-reduce of its output (Shoeybi et al. 2019, section 3).
struct TensorParallelPoint {
  int tensor = 0;
  int64_t hidden = 0, tokens = 0;
  double compute = 0;        ///< seconds of the two products, all ranks at once
  double communication = 0;  ///< seconds of the all-reduce
  int64_t message_bytes() const { return 4 * tokens * hidden; }
  double ratio() const { return communication / compute; }
  /// FLOP/s that one rank reached while all computed: 16 * tokens * h^2 / t in `compute` seconds.
  double flop_rate() const;
  /// Ring bytes a second of one rank: 2(t-1)/t * message in `communication` seconds.
  double bandwidth() const;
};

/// beta (t-1)/(8h) * FLOP rate / bandwidth: what the ratio of communication to computation is when every
/// product runs at `flop_rate` and every all-reduce at `bandwidth`. beta: bytes an element.
double predicted_ratio(int tensor, int64_t hidden, double beta, double flop_rate, double bandwidth);

/// `triax bench tp`: sweeps tensor degree (powers of two, and all ranks), hidden size and tokens, and prints
/// and plots measured communication over computation beside predicted_ratio() with the highest rates that the
/// sweep reached at that degree. Rank 0 writes to `out`.
void bench_tensor_parallel(std::ostream& out, const TensorParallelOptions& options);

}  // namespace triax
