#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/gemm_tile.h"

// The tile's algorithm for one instruction set, after Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication" (2008): a depth of at most gemm_max_depth of K at a time, op(B) packed into panels
// of as many columns as the registers hold, rows of op(A) in blocks that stay in the second cache, and a
// micro-kernel that keeps Isa::rows x Isa::columns of C in registers.
//
// Included by gemm_{avx512,avx2,generic}.cpp, each of which compiles it for its own target; everything is in
// an unnamed namespace, so that the linker can't swap one target's code for another's.
//
// Isa supplies: Vector, lanes, rows, vectors (per row), zero(), load(), store(), broadcast(), multiply_add(),
// add() and transpose(), which writes a square of `square` x `square` elements transposed.
namespace triax::cpu {

namespace {

template <class Isa>
struct GemmPanels {
  using Vector = typename Isa::Vector;
  static constexpr int mr = Isa::rows;
  static constexpr int vectors = Isa::vectors;
  static constexpr int nr = Isa::lanes * Isa::vectors;
  static constexpr int64_t block_rows = std::max<int64_t>(1, 96 / mr) * mr;
  static constexpr int64_t max_panels = (gemm_max_columns + nr - 1) / nr;

  /// How a block's result meets C.
  struct Update {
    bool accumulate;    // add to C, else overwrite it unread
    const float* bias;  // the tile's first column's, or null
  };

  /// R rows of A, from `a` on (row-major with lda, or a packed panel [depth][mr]), times one panel
  /// [depth][nr]: C[R, nr]. Each element is one chain of fused multiply-adds in ascending k, then plain sums.
  /// Not inlined: the rows' offsets need all address registers.
  template <int R, bool packed_a>
  [[gnu::noinline]] static void micro(int64_t depth, const float* a, int64_t lda, const float* panel,
                                      float* c, int64_t ldc, int64_t columns, Update update) {
    const int64_t row_step = packed_a ? 1 : lda, depth_step = packed_a ? mr : 1;
    Vector sum[R][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) sum[i][j] = Isa::zero();
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {  // C arrives while the products are formed
      __builtin_prefetch(c + i * ldc, 1);
      __builtin_prefetch(c + i * ldc + columns - 1, 1);
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < depth; ++k) {
      Vector b[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) b[j] = Isa::load(panel + j * Isa::lanes);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const Vector x = Isa::broadcast(a + i * row_step);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) sum[i][j] = Isa::multiply_add(x, b[j], sum[i][j]);
      }
      a += depth_step;
      panel += nr;
    }
    if (columns == nr) {
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) {
          float* to = c + i * ldc + j * Isa::lanes;
          Vector v = sum[i][j];
          if (update.accumulate) v = Isa::add(Isa::load(to), v);
          if (update.bias) v = Isa::add(v, Isa::load(update.bias + j * Isa::lanes));
          Isa::store(to, v);
        }
      return;
    }
    alignas(64) float edge[R][nr];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) Isa::store(&edge[i][j * Isa::lanes], sum[i][j]);
    for (int i = 0; i < R; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        float v = edge[i][j];
        if (update.accumulate) v = c[i * ldc + j] + v;
        if (update.bias) v = v + update.bias[j];
        c[i * ldc + j] = v;
      }
  }

  /// micro() for the last rows of a block, 1 <= rows <= mr.
  template <bool packed_a, int R = mr, class... Args>
  static void micro_rows(int64_t rows, const Args&... args) {
    if constexpr (R == 1) {
      micro<1, packed_a>(args...);
    } else {
      if (rows == R)
        micro<R, packed_a>(args...);
      else
        micro_rows<packed_a, R - 1>(rows, args...);
    }
  }

  /// Columns [column, column + columns) of op(B), depth [k0, k0 + depth), as panels [depth][nr]; columns that
  /// are missing in the last panel are zero.
  static void pack_b(const Gemm& op, int64_t k0, int64_t depth, int64_t column, int64_t columns,
                     float* panels) {
    for (int64_t j0 = 0; j0 < columns; j0 += nr, panels += depth * nr) {
      const int64_t width = std::min<int64_t>(nr, columns - j0);
      if (op.transpose_b)
        pack_transposed<nr>(op.b + (column + j0) * op.ldb + k0, op.ldb, depth, width, panels);
      else
        pack_straight<nr>(op.b + k0 * op.ldb + column + j0, op.ldb, depth, width, panels);
    }
  }

  /// to[k][j] = from[k * ld + j].
  template <int W>
  static void pack_straight(const float* from, int64_t ld, int64_t depth, int64_t width, float* to) {
    if (width == W) {
      for (int64_t k = 0; k < depth; ++k) std::memcpy(to + k * W, from + k * ld, sizeof(float) * W);
      return;
    }
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < W; ++j) to[k * W + j] = j < width ? from[k * ld + j] : 0.0f;
  }

  /// to[k][j] = from[j * ld + k].
  template <int W>
  static void pack_transposed(const float* from, int64_t ld, int64_t depth, int64_t width, float* to) {
    constexpr int square = Isa::square;
    int64_t k = 0;
    if (width == W) {
      for (; k + square <= depth; k += square)
        for (int j = 0; j < W; j += square) Isa::transpose(from + j * ld + k, ld, to + k * W + j, W);
    }
    for (; k < depth; ++k)
      for (int64_t j = 0; j < W; ++j) to[k * W + j] = j < width ? from[j * ld + k] : 0.0f;
  }

  /// `rows` rows of a transposed A, depth [k0, k0 + depth), as panels [depth][mr].
  static void pack_a(const Gemm& op, int64_t k0, int64_t depth, int64_t row, int64_t rows, float* panels) {
    for (int64_t i = 0; i < rows; i += mr, panels += depth * mr)
      pack_straight<mr>(op.a + k0 * op.lda + row + i, op.lda, depth, std::min<int64_t>(mr, rows - i), panels);
  }

  /// A block of rows (in the second cache) times the packed columns.
  static void block(const Gemm& op, int64_t k0, int64_t depth, int64_t row, int64_t rows,
                    const float* packed_a, const float* packed_b, const GemmTile& tile, Update update) {
    for (int64_t j = 0; j < tile.columns; j += nr) {
      const float* panel = packed_b + j * depth;
      const int64_t columns = std::min<int64_t>(nr, tile.columns - j);
      const Update here{update.accumulate, update.bias ? update.bias + j : nullptr};
      for (int64_t i = 0; i < rows; i += mr) {
        float* c = op.c + (row + i) * op.ldc + tile.column + j;
        const int64_t height = std::min<int64_t>(mr, rows - i);
        if (packed_a)
          micro_rows<true>(height, depth, packed_a + i * depth, int64_t{0}, panel, c, op.ldc, columns, here);
        else
          micro_rows<false>(height, depth, op.a + (row + i) * op.lda + k0, op.lda, panel, c, op.ldc, columns,
                            here);
      }
    }
  }

  static void run(const Gemm& op, const GemmTile& tile) {
    alignas(64) float packed_b[max_panels * nr * gemm_max_depth];
    alignas(64) float packed_a[block_rows * gemm_max_depth];
    // K is cut evenly, by a rule of K alone: the cuts are part of the result's bits.
    const int64_t pieces = std::max<int64_t>(1, (op.k + gemm_max_depth - 1) / gemm_max_depth);
    const int64_t step = (op.k + pieces - 1) / pieces;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t k0 = piece * step, depth = std::min(step, op.k - k0);
      const bool last = piece + 1 == pieces;
      const Update update{piece > 0 || op.beta != 0, last && op.bias ? op.bias + tile.column : nullptr};
      pack_b(op, k0, depth, tile.column, tile.columns, packed_b);
      for (int64_t i = 0; i < tile.rows; i += block_rows) {
        const int64_t row = tile.row + i, rows = std::min(block_rows, tile.rows - i);
        if (op.transpose_a) pack_a(op, k0, depth, row, rows, packed_a);
        block(op, k0, depth, row, rows, op.transpose_a ? packed_a : nullptr, packed_b, tile, update);
      }
    }
  }
};

}  // namespace

}  // namespace triax::cpu
