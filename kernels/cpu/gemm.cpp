#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_tile.h"

// Why not a BLAS: the rows of a product must not depend on which rows are computed with them. oneDNN 2.6 and
// OpenBLAS 0.3.21 choose their kernel, and with it the order of a sum, by the number of rows: of the shapes
// of a GPT-2, none gave the same bits for a subset of its rows. This one is as fast on the processors we
// measured
// (`triax bench kernels`).

namespace triax::cpu {

bool has_avx512_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

const GemmCode& gemm_code(DType operands) {
  if (operands == DType::bf16 && has_avx512_bf16()) return gemm_avx512_bf16;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    return gemm_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return gemm_avx2;
#endif
  return gemm_generic;
}

GemmPieces::GemmPieces(int64_t k, int pair) : count(pieces_of(k, gemm_max_depth * pair)) {
  const int64_t units = ((k + count - 1) / count + pair - 1) / pair;
  depth = units * pair;
}

namespace {

struct Cut {
  int64_t rows, columns;  // of a tile
};

/// Every tile packs its columns of op(B), most of which is hidden behind the multiplication where they are
/// contiguous, and reads its rows of op(A) or copies them (copies_a). Of the cuts with enough tiles for every
/// thread, so that one that is disturbed leaves some to others, the one is taken whose longest share and
/// packing are least, in units of a multiplication. An element's bits don't depend on the cut, so it may look
/// at the number of threads.
Cut cut_of(const Gemm& op, int pair, int threads) {
  constexpr int64_t row_unit = 24, column_unit = 32;  // multiples of the micro-kernels' sides
  const GemmPieces pieces(op.k, pair);
  const bool rounded = op.c.dtype() != DType::f32, copied = copies_a(op, pair);
  const int64_t units = std::max<int64_t>(1, pieces.depth / pair);
  const int64_t most_rows = std::min(rounded ? gemm_max_rounded / gemm_max_columns : 1344,
                                     copied ? gemm_max_copied / units / row_unit * row_unit : op.m);
  const int64_t most_columns = rounded ? gemm_max_columns : op.n;
  const int64_t reading_a = copied ? 4 : 1, packing_b = op.transpose_b ? 8 : 1;
  const int64_t enough = threads == 1 ? 1 : 4 * threads;
  const auto part = [](int64_t n, int64_t pieces, int64_t unit, int64_t most) {
    return std::min(std::max(most, unit), pieces_of(pieces_of(n, pieces), unit) * unit);
  };
  Cut best{};
  int64_t best_tiles = 0, least_cost = 0;
  const auto consider = [&](int64_t wanted_down, int64_t wanted_across) {
    const Cut cut{part(op.m, wanted_down, row_unit, most_rows),
                  part(op.n, wanted_across, column_unit, most_columns)};
    const int64_t down = pieces_of(op.m, cut.rows), across = pieces_of(op.n, cut.columns);
    const int64_t tiles = std::min(enough, down * across);
    const int64_t share = pieces_of(down * across, threads) * threads * cut.rows * cut.columns;
    const int64_t cost = share + packing_b * down * op.n + reading_a * across * op.m;
    if (tiles < best_tiles || (tiles == best_tiles && cost >= least_cost)) return;
    best = cut, best_tiles = tiles, least_cost = cost;
  };
  const int64_t down_least = pieces_of(op.m, most_rows), across_least = pieces_of(op.n, most_columns);
  // With many threads not every one of the thousands of cuts.
  for (int64_t down = down_least; down <= std::max(down_least + threads, enough); down += 1 + down / 16) {
    const int64_t across = std::max(across_least, pieces_of(enough, down));
    for (int64_t more = 0; more < std::min(threads, 8); ++more) consider(down, across + more);
  }
  return best;
}

}  // namespace

void gemm_by(Device& device, const Gemm& op, const GemmCode& code) {
  check(op.beta == 0 || op.beta == 1, "a GEMM's beta is {}; it can be 0 (write) or 1 (accumulate)", op.beta);
  check(op.a.dtype() == op.b.dtype(), "a GEMM of {} and {}: A and B must have one type",
        name_of(op.a.dtype()), name_of(op.b.dtype()));
  check(op.beta == 0 || op.c.dtype() == DType::f32, "a GEMM can't accumulate in {}, only in f32",
        name_of(op.c.dtype()));
  if (op.m <= 0 || op.n <= 0) return;
  const Cut cut = cut_of(op, code.pair, device.threads().size());
  const int64_t down = pieces_of(op.m, cut.rows), across = pieces_of(op.n, cut.columns);
  device.threads().run(down * across, [&](int64_t i) {
    const int64_t row = i % down * cut.rows, column = i / down * cut.columns;
    code.tile(op, {row, std::min(cut.rows, op.m - row), column, std::min(cut.columns, op.n - column)});
  });
}

void gemm(Device& device, const Gemm& op) {
  gemm_by(device, op, gemm_code(op.a.dtype()));
}

}  // namespace triax::cpu
