#include "kernels/cpu/gemm_cut.h"

#include <algorithm>
#include <map>

namespace triax::cpu {

namespace {

/// What a cut is chosen by.
struct Shape {
  int64_t m, n, depth;  // of a piece of K, in units
  bool transpose_b, copies_a, rounded;
  int threads;
  auto operator<=>(const Shape&) const = default;
};

/// Of one tile, a unit of depth, in multiplications and additions of the micro-kernel; after measured
/// rates of tiles of 24 to 256 rows and 32 to 384 columns (AVX-512). Columns of op(B) are packed under the
/// multiplication but for the first panel, as far as there are rows to hide it.
double cost_of_tile(const Shape& shape, int64_t rows, int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  const double first = std::min<double>(gemm_column_unit, c);
  const double packing = shape.transpose_b ? 8 * c : 10 * first + std::max(1.0, 240 / r) * (c - first);
  return r * c + packing + (shape.copies_a ? 16 : 3) * r;
}

double longest_share(const Shape& shape, const GemmCut& cut) {
  const int64_t rows = pieces_of(pieces_of(cut.m, gemm_row_unit), cut.down) * gemm_row_unit;
  const int64_t columns = pieces_of(pieces_of(cut.n, gemm_column_unit), cut.across) * gemm_column_unit;
  const double tile = cost_of_tile(shape, rows, columns);
  const auto share = static_cast<double>(pieces_of(cut.tiles(), shape.threads));
  return tile * (share + (shape.threads > 1 ? 1.0 / 16 : 0.0));
}

GemmCut best_cut(const Shape& shape) {
  const int64_t rows = pieces_of(shape.m, gemm_row_unit), columns = pieces_of(shape.n, gemm_column_unit);
  // At most 1344 was as good as 256 or better wherever it was tried (docs/performance.md).
  int64_t most_rows = shape.rounded ? gemm_max_rounded / gemm_max_columns : 1344;
  if (shape.copies_a) most_rows = std::min(most_rows, gemm_max_copied / std::max<int64_t>(1, shape.depth));
  const int64_t down_least = pieces_of(rows, std::max<int64_t>(1, most_rows / gemm_row_unit));
  const int64_t across_least = shape.rounded ? pieces_of(columns, gemm_max_columns / gemm_column_unit) : 1;
  GemmCut best{shape.m, shape.n, down_least, across_least};
  double least = longest_share(shape, best);
  for (int64_t down = down_least; down <= std::min(rows, down_least + 8 * shape.threads);
       down += 1 + down / 16)
    for (const int64_t of_thread : {1, 2, 3, 4, 6, 8}) {
      const int64_t wanted = pieces_of(of_thread * shape.threads, down);
      const GemmCut cut{shape.m, shape.n, down, std::clamp(wanted, across_least, columns)};
      const double cost = longest_share(shape, cut);
      if (cost < least) best = cut, least = cost;
    }
  return best;
}

}  // namespace

GemmTile GemmCut::tile(int64_t i) const {
  const auto begin = [](int64_t n, int64_t unit, int64_t piece, int64_t pieces) {
    return std::min(n, piece * pieces_of(n, unit) / pieces * unit);
  };
  const int64_t row = begin(m, gemm_row_unit, i % down, down);
  const int64_t column = begin(n, gemm_column_unit, i / down, across);
  return {row, begin(m, gemm_row_unit, i % down + 1, down) - row, column,
          begin(n, gemm_column_unit, i / down + 1, across) - column};
}

GemmCut gemm_cut(const Gemm& op, int pair, int threads) {
  const Shape shape{op.m,
                    op.n,
                    GemmPieces(op.k, pair).depth / pair,
                    op.transpose_b,
                    copies_a(op, pair),
                    op.c.dtype() != DType::f32,
                    threads};
  // A step has a few shapes and thousands of products.
  thread_local std::map<Shape, GemmCut> known;
  const auto found = known.find(shape);
  if (found != known.end()) return found->second;
  if (known.size() > 1000) known.clear();
  return known[shape] = best_cut(shape);
}

}  // namespace triax::cpu
