#pragma once

#include "kernels/cpu/gemm_tile.h"

namespace triax::cpu {

/// A product cut into down x across tiles, as evenly as multiples of gemm_row_unit and gemm_column_unit
/// allow.
struct GemmCut {
  int64_t m, n, down, across;
  int64_t tiles() const { return down * across; }
  /// Neighbours have the same columns.
  GemmTile tile(int64_t i) const;
};

constexpr int64_t gemm_row_unit = 8, gemm_column_unit = 32;  ///< sides of the widest micro-kernel

/// The cut whose longest share of the work is estimated to be the least: multiplying, packing op(B), reading
/// or copying op(A), and what a thread that is disturbed leaves to others. Tiles keep the limits of
/// GemmCode::tile. An element's bits don't depend on it, so it may look at the number of threads.
GemmCut gemm_cut(const Gemm& op, int pair, int threads);

}  // namespace triax::cpu
