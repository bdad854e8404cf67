#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/gemm_tile.h"

// The tile's algorithm for one instruction set, after Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication" (2008): a depth of at most gemm_max_depth of K at a time, op(B) packed into panels
// of as many columns as the registers hold, and a micro-kernel that keeps Isa::rows x Isa::columns of C in
// registers. A panel is multiplied with all rows of the tile, and meanwhile the next one is packed, or its
// memory fetched: that is up to a fifth of the work where rows are few, and most of it is waiting. With
// Isa::packs_within the micro-kernel does that, and Isa::rows is less than the registers would hold: it
// leaves some for the packing; without, it is done between two calls. At most eight rows at a time: where
// their distance is a multiple of 4096 bytes, they lie in one set of the first cache, and more would evict
// each other.
//
// What is packed are units of 32 bits: a float (bf16 is converted on the way), or, where the instruction set
// multiplies bf16, a pair of them with ascending k.
//
// Included by gemm_{avx512,avx512_bf16,avx2,generic}.cpp, each of which compiles it for its own target;
// everything is in an unnamed namespace, so that the linker can't swap one target's code for another's.
//
// Isa supplies: Vector, lanes, rows, vectors (per row), zero(), load(), store(), broadcast(), multiply_add(),
// add(), pair (the elements of a unit, 1 or 2), transpose(), which writes `square` rows of `square` units
// transposed, packs_within, and streams: whether there are stream(), which stores an aligned vector past the
// caches, and streamed(), after which other threads that are told to read what was streamed find it.
namespace triax::cpu {

namespace {

/// T: elements of A and B. C: of C and the bias.
template <class Isa, class T, class C>
struct GemmPanels {
  using Vector = typename Isa::Vector;
  static constexpr int mr = Isa::rows;
  static constexpr int vectors = Isa::vectors;
  static constexpr int nr = Isa::lanes * Isa::vectors;
  static constexpr int pair = Isa::pair;
  static_assert(mr <= 8 && (pair == 1 || std::is_same_v<T, bf16>));

  static int64_t units(int64_t depth) { return (depth + pair - 1) / pair; }

  /// How a block's result meets C.
  struct Update {
    bool accumulate;    // add to C, else overwrite it unread
    const float* bias;  // of the first column, or null
    bool stream;        // C, whole aligned vectors of it, goes past the caches
    Update of_column(int64_t j) const { return {accumulate, bias ? bias + j : nullptr, stream}; }
  };
  static Update update_of(const Gemm& op, const GemmPieces& pieces, int64_t piece, const float* bias,
                          bool stream) {
    return {piece > 0 || op.beta != 0, piece + 1 == pieces.count ? bias : nullptr, stream};
  }

  /// Whether a tile at `c` is streamed: where whole cache lines of a large weight's gradient are overwritten,
  /// in one piece of K. A cache reads each from memory before, and what reads it next, a sum or the norm,
  /// comes when other operands have taken its place, mostly.
  static bool streams(const Gemm& op, const GemmPieces& pieces, const float* c, int64_t ldc) {
    constexpr int64_t line = 64;
    return Isa::streams && std::is_same_v<C, float> && op.transpose_a && op.beta == 0 && !op.bias &&
           pieces.count == 1 && op.m * op.n >= gemm_least_streamed &&
           ldc * static_cast<int64_t>(sizeof(float)) % line == 0 &&
           reinterpret_cast<uintptr_t>(c) % line == 0;
  }

  /// What micro() does besides, a step for every `every` units of depth: nothing, or NextPanel.
  struct Nothing {};

  /// R rows of A, from `a` on (row-major with lda, or a packed panel [depth][mr]), times one panel
  /// [depth][nr]: C[R, nr]; depth and lda in units. Each element is one chain of fused multiply-adds in
  /// ascending k, then plain sums. Not inlined: the rows' offsets need all address registers.
  template <int R, bool packed_a, class Meanwhile>
  [[gnu::noinline]] static void micro(int64_t depth, const float* a, int64_t lda, const float* panel,
                                      float* c, int64_t ldc, int64_t columns, Update update,
                                      Meanwhile& meanwhile) {
    const int64_t row_step = packed_a ? 1 : lda, depth_step = packed_a ? mr : 1;
    Vector sum[R][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) sum[i][j] = Isa::zero();
    if (!update.stream) {
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {  // C arrives while the products are formed
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + columns - 1, 1);
      }
    }
    const auto multiply = [&]() __attribute__((always_inline)) {
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
    };
    int64_t k = 0;
    if constexpr (!std::is_same_v<Meanwhile, Nothing>)
      for (; k + meanwhile.every <= depth; k += meanwhile.every) {
        meanwhile.step();
        for (int64_t i = 0; i < meanwhile.every; i += 2) multiply(), multiply();
      }
#pragma GCC unroll 2
    for (; k < depth; ++k) multiply();
    if constexpr (Isa::streams) {
      if (columns == nr && update.stream) {
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
          for (int j = 0; j < vectors; ++j) Isa::stream(c + i * ldc + j * Isa::lanes, sum[i][j]);
        return;
      }
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
  template <bool packed_a, class Meanwhile, int R = mr, class... Args>
  static void micro_rows(int64_t rows, Args&&... args) {
    if constexpr (R == 1) {
      micro<1, packed_a, Meanwhile>(args...);
    } else {
      if (rows == R)
        micro<R, packed_a, Meanwhile>(args...);
      else
        micro_rows<packed_a, Meanwhile, R - 1>(rows, args...);
    }
  }

  /// Columns [column, column + columns) of op(B), depth [k0, k0 + depth), as panels [units][nr]; columns that
  /// are missing in the last panel are zero.
  static void pack_b(const Gemm& op, int64_t k0, int64_t depth, int64_t column, int64_t columns,
                     float* panels) {
    const T* b = op.b.as<T>();
    for (int64_t j0 = 0; j0 < columns; j0 += nr, panels += units(depth) * nr) {
      const int64_t width = std::min<int64_t>(nr, columns - j0);
      if (op.transpose_b)
        pack_transposed<nr>(b + (column + j0) * op.ldb + k0, op.ldb, depth, width, panels);
      else
        pack_straight<nr>(b + k0 * op.ldb + column + j0, op.ldb, depth, width, panels);
    }
  }

  /// The unit of the elements at[0] and, in a pair, at[step], or 0 beyond the depth.
  static float unit(const T* at, int64_t step, bool whole) {
    if constexpr (pair == 1) {
      return value_of(*at);
    } else {
      const uint32_t low = at[0].bits, high = whole ? at[step].bits : 0u;
      return __builtin_bit_cast(float, low | high << 16);
    }
  }

  /// to[k][j] = from[k * ld + j]. Brings what lies `soon` behind into the second cache, for a later call.
  template <int W>
  static void pack_straight(const T* from, int64_t ld, int64_t depth, int64_t width, float* to,
                            int64_t soon = 0) {
    for (int64_t k = 0; k < depth; k += pair, to += W) {
      const T* row = from + k * ld;
      if (soon) __builtin_prefetch(row + soon, 0, 2);
      const bool whole = k + pair <= depth;
      if (width == W && whole) {
        if constexpr (std::is_same_v<T, float>) {
          std::memcpy(to, row, sizeof(float) * W);
        } else {
#pragma omp simd
          for (int j = 0; j < W; ++j) to[j] = unit(row + j, ld, true);
        }
      } else {
        for (int64_t j = 0; j < W; ++j) to[j] = j < width ? unit(row + j, ld, whole) : 0.0f;
      }
    }
  }

  /// to[k][j] = from[j * ld + k].
  template <int W>
  static void pack_transposed(const T* from, int64_t ld, int64_t depth, int64_t width, float* to) {
    constexpr int square = Isa::square, deep = square * pair;
    int64_t k = 0;
    if (width == W) {
      // A cache line of a row is used at once: W rows whose distance is a power of two evict each other. The
      // prefetch is ours to do, because a processor follows fewer streams than W.
      constexpr int64_t line = 64 / sizeof(T);
      for (; k + line <= depth; k += line)
        for (int j = 0; j < W; j += square) {
          for (int i = 0; i < square; ++i) __builtin_prefetch(from + (j + i) * ld + k + 2 * line);
          for (int64_t part = k; part < k + line; part += deep)
            Isa::transpose(from + j * ld + part, ld, to + part / pair * W + j, W);
        }
      for (; k + deep <= depth; k += deep)
        for (int j = 0; j < W; j += square) Isa::transpose(from + j * ld + k, ld, to + k / pair * W + j, W);
    }
    for (; k < depth; k += pair)
      for (int64_t j = 0; j < W; ++j)
        to[k / pair * W + j] = j < width ? unit(from + j * ld + k, 1, k + pair <= depth) : 0.0f;
  }

  /// Rows of op(A), depth [k0, k0 + depth): where they lie, or packed.
  struct Rows {
    const float* at;
    int64_t ld;   // units from row to row; of no meaning in panels
    bool panels;  // [units][mr] each
  };
  static Rows rows_of_a(const Gemm& op, int64_t k0, int64_t depth, int64_t row, int64_t rows, float* memory) {
    const T* a = op.a.as<T>();
    if (op.transpose_a) {
      for (int64_t i = 0; i < rows; i += mr)
        pack_straight<mr>(a + k0 * op.lda + row + i, op.lda, depth, std::min<int64_t>(mr, rows - i),
                          memory + units(depth) * i, 4 * mr);
      return {memory, 0, true};
    }
    const T* first = a + row * op.lda + k0;
    if (!copies_a(op, pair)) return {reinterpret_cast<const float*>(first), op.lda / pair, false};
    for (int64_t i = 0; i < rows; ++i) {
      const T* from = first + i * op.lda;
      float* to = memory + i * units(depth);
#pragma omp simd
      for (int64_t u = 0; u < depth / pair; ++u) to[u] = unit(from + u * pair, 1, true);
      if (depth % pair) to[depth / pair] = unit(from + depth - 1, 1, false);
    }
    return {memory, units(depth), false};
  }

  /// The panel of nr whole columns that comes next. In steps it is packed, a unit of all columns each; where
  /// columns are rows of memory, two of its cache lines are brought into the second cache instead: to
  /// transpose in steps gained nothing (docs/performance.md). finish() packs what is left.
  template <bool transposed>
  struct NextPanel {
    static constexpr int64_t line = 64 / sizeof(T), soon = 16;
    const T* from;
    int64_t ld, depth;
    float* to;
    int64_t steps, at = 0, every = 0, each = 0;

    NextPanel(const Gemm& op, int64_t k0, int64_t depth, int64_t column, float* to)
        : from(op.b.as<T>() + (transposed ? column * op.ldb + k0 : k0 * op.ldb + column)),
          ld(op.ldb),
          depth(depth),
          to(to),
          steps(transposed ? nr / 2 * (depth / line) : depth / pair) {}
    /// Shares the steps out to `calls` of micro(), of `units` of depth each: `each` of them for a call.
    void spread(int64_t calls, int64_t units) {
      each = std::max<int64_t>(1, (steps + calls - 1) / calls);
      every = std::max<int64_t>(2, units / each / 2 * 2);
    }
    [[gnu::always_inline]] void step() {
      if (at >= steps) return;
      if constexpr (transposed) {
        const T* first = from + at / (depth / line) * 2 * ld + at % (depth / line) * line;
        __builtin_prefetch(first, 0, 2);
        __builtin_prefetch(first + ld, 0, 2);
      } else {
        const T* unit = from + at * pair * ld;
        for (int64_t j = 0; j < nr; j += line) __builtin_prefetch(unit + soon * pair * ld + j, 0, 2);
        pack_straight<nr>(unit, ld, pair, nr, to + at * nr);
      }
      ++at;
    }
    void finish() {
      if constexpr (transposed)
        pack_transposed<nr>(from, ld, depth, nr, to);
      else
        pack_straight<nr>(from + at * pair * ld, ld, depth - at * pair, nr, to + at * nr);
    }
  };

  /// Rows of a tile from `i` on, as many as micro() takes, times one panel.
  template <class Meanwhile>
  static void multiply_rows(int64_t depth, int64_t i, int64_t rows, const Rows& a, const float* panel,
                            float* c, int64_t ldc, int64_t columns, Update update, Meanwhile& meanwhile) {
    const int64_t height = std::min<int64_t>(mr, rows - i);
    if (a.panels)
      micro_rows<true, Meanwhile>(height, units(depth), a.at + i * units(depth), int64_t{0}, panel,
                                  c + i * ldc, ldc, columns, update, meanwhile);
    else
      micro_rows<false, Meanwhile>(height, units(depth), a.at + i * a.ld, a.ld, panel, c + i * ldc, ldc,
                                   columns, update, meanwhile);
  }

  /// All rows of a tile times one panel.
  template <class Meanwhile>
  static void multiply_panel(int64_t depth, int64_t rows, const Rows& a, const float* panel, float* c,
                             int64_t ldc, int64_t columns, Update update, Meanwhile& meanwhile) {
    if constexpr (!Isa::packs_within && !std::is_same_v<Meanwhile, Nothing>) {
      Nothing nothing;
      for (int64_t i = 0; i < rows; i += mr) {
        for (int64_t s = 0; s < meanwhile.each; ++s) meanwhile.step();
        multiply_rows(depth, i, rows, a, panel, c, ldc, columns, update, nothing);
      }
    } else {
      for (int64_t i = 0; i < rows; i += mr)
        multiply_rows(depth, i, rows, a, panel, c, ldc, columns, update, meanwhile);
    }
  }

  /// The tile's sums, added to or written over `c`.
  template <bool transposed>
  static void sum(const Gemm& op, const GemmTile& tile, float* c, int64_t ldc, const float* bias) {
    alignas(64) float panels[2][nr * gemm_max_depth];
    const GemmPieces pieces(op.k, pair);
    float* copied = nullptr;
    if (copies_a(op, pair)) {
      gemm_check(tile.rows * units(pieces.depth) <= gemm_max_copied, tile);
      copied = gemm_memory(0);
    }
    const bool stream = streams(op, pieces, c, ldc);
    const auto depth_of = [&](int64_t piece) { return std::min(pieces.depth, op.k - piece * pieces.depth); };
    int64_t turn = 0;
    bool packed = false;
    for (int64_t piece = 0; piece < pieces.count; ++piece) {
      const int64_t k0 = piece * pieces.depth, depth = depth_of(piece);
      const Update update = update_of(op, pieces, piece, bias, stream);
      const Rows a = rows_of_a(op, k0, depth, tile.row, tile.rows, copied);
      for (int64_t j = 0; j < tile.columns; j += nr, turn = 1 - turn) {
        const int64_t columns = std::min<int64_t>(nr, tile.columns - j);
        if (!packed) pack_b(op, k0, depth, tile.column + j, columns, panels[turn]);
        const bool last = j + nr >= tile.columns;
        const int64_t next_piece = last ? piece + 1 : piece, next_j = last ? 0 : j + nr;
        packed = next_piece < pieces.count && next_j + nr <= tile.columns;
        const auto multiply = [&](auto& meanwhile) {
          multiply_panel(depth, tile.rows, a, panels[turn], c + j, ldc, columns, update.of_column(j),
                         meanwhile);
        };
        if (packed) {
          NextPanel<transposed> next(op, next_piece * pieces.depth, depth_of(next_piece),
                                     tile.column + next_j, panels[1 - turn]);
          next.spread(pieces_of(tile.rows, mr), units(depth));
          multiply(next);
          next.finish();
        } else {
          Nothing nothing;
          multiply(nothing);
        }
      }
    }
    if constexpr (Isa::streams)
      if (stream) Isa::streamed();
  }

  /// sum(c, ldc, bias) writes the tile's sums, or adds them, in fp32.
  static void run(const Gemm& op, const GemmTile& tile, const auto& sum) {
    const C* bias = op.bias ? op.bias.as<C>() + tile.column : nullptr;
    C* c = op.c.as<C>() + tile.row * op.ldc + tile.column;
    if constexpr (std::is_same_v<C, float>) {
      sum(c, op.ldc, bias);
    } else {
      gemm_check(tile.rows * tile.columns <= gemm_max_rounded && tile.columns <= gemm_max_columns, tile);
      alignas(64) float widened[gemm_max_columns];
      float* sums = gemm_memory(1);
      if (bias)
        for (int64_t j = 0; j < tile.columns; ++j) widened[j] = value_of(bias[j]);
      sum(sums, tile.columns, bias ? widened : nullptr);
      for (int64_t i = 0; i < tile.rows; ++i) {
        const float* from = sums + i * tile.columns;
        C* to = c + i * op.ldc;
#pragma omp simd
        for (int64_t j = 0; j < tile.columns; ++j) to[j] = rounded<C>(from[j]);
      }
    }
  }

  static void tile(const Gemm& op, const GemmTile& tile) {
    run(op, tile, [&](float* c, int64_t ldc, const float* bias) {
      if (op.transpose_b)
        sum<true>(op, tile, c, ldc, bias);
      else
        sum<false>(op, tile, c, ldc, bias);
    });
  }
};

/// The code of `Isa` for products of f32, and of bf16 to either.
template <class Isa>
struct GemmOf {
  template <class Do>
  static void with(const Gemm& op, const Do& go) {
    if constexpr (Isa::pair == 1) {
      if (op.a.dtype() == DType::f32) return go(GemmPanels<Isa, float, float>{});
    }
    if (op.c.dtype() == DType::f32)
      go(GemmPanels<Isa, bf16, float>{});
    else
      go(GemmPanels<Isa, bf16, bf16>{});
  }
  static void tile(const Gemm& op, const GemmTile& tile) {
    with(op, [&](auto panels) { panels.tile(op, tile); });
  }
  static constexpr GemmCode code{Isa::pair, tile};
};

}  // namespace

}  // namespace triax::cpu
