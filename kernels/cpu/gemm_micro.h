#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/gemm_tile.h"

// The tile's algorithm for one instruction set, after Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication" (2008): a depth of at most gemm_max_depth of K at a time, op(B) packed into panels
// of as many columns as the registers hold, rows of op(A) in blocks that stay in the second cache (or all of
// them, where they are few), and a micro-kernel that keeps Isa::rows x Isa::columns of C in registers.
//
// What is packed are units of 32 bits: a float (bf16 is converted on the way), or, where the instruction set
// multiplies bf16, a pair of them with ascending k.
//
// Included by gemm_{avx512,avx512_bf16,avx2,generic}.cpp, each of which compiles it for its own target;
// everything is in an unnamed namespace, so that the linker can't swap one target's code for another's.
//
// Isa supplies: Vector, lanes, rows, vectors (per row), zero(), load(), store(), broadcast(), multiply_add(),
// add(), pair (the elements of a unit, 1 or 2) and transpose(), which writes `square` rows of `square` units
// transposed.
namespace triax::cpu {

namespace {

/// T: elements of A and B. C: of C and the bias.
template <class Isa, class T, class C>
struct GemmPanels {
  using Vector = typename Isa::Vector;
  static constexpr int mr = Isa::rows;
  static constexpr int vectors = Isa::vectors;
  static constexpr int nr = Isa::lanes * Isa::vectors;
  static constexpr int64_t block_rows = std::max<int64_t>(1, gemm_block_rows / mr) * mr;
  static constexpr int64_t max_panels = (gemm_max_columns + nr - 1) / nr;

  static constexpr int pair = Isa::pair;
  static_assert(pair == 1 || std::is_same_v<T, bf16>);

  static int64_t units(int64_t depth) { return (depth + pair - 1) / pair; }

  /// How a block's result meets C.
  struct Update {
    bool accumulate;    // add to C, else overwrite it unread
    const float* bias;  // of the first column, or null
    Update of_column(int64_t j) const { return {accumulate, bias ? bias + j : nullptr}; }
  };
  static Update update_of(const Gemm& op, const GemmPieces& pieces, int64_t piece, const float* bias) {
    return {piece > 0 || op.beta != 0, piece + 1 == pieces.count ? bias : nullptr};
  }

  /// Memory to be brought into the second cache meanwhile: two lines, `gap` elements apart, for every
  /// `ahead_every` units of depth, then `step` elements on.
  struct Ahead {
    const T* at;
    int64_t gap, step;
  };
  struct Nothing {};
  static constexpr int64_t ahead_every = 16;

  /// R rows of A, from `a` on (row-major with lda, or a packed panel [depth][mr]), times one panel
  /// [depth][nr]: C[R, nr]; depth and lda in units. Each element is one chain of fused multiply-adds in
  /// ascending k, then plain sums. Not inlined: the rows' offsets need all address registers.
  template <int R, bool packed_a, class Meanwhile>
  [[gnu::noinline]] static void micro(int64_t depth, const float* a, int64_t lda, const float* panel,
                                      float* c, int64_t ldc, int64_t columns, Update update,
                                      Meanwhile ahead) {
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
    if constexpr (std::is_same_v<Meanwhile, Ahead>)
      for (; k + ahead_every <= depth; k += ahead_every) {
        __builtin_prefetch(ahead.at, 0, 2);
        __builtin_prefetch(ahead.at + ahead.gap, 0, 2);
        ahead.at += ahead.step;
#pragma GCC unroll 2
        for (int64_t i = 0; i < ahead_every; ++i) multiply();
      }
#pragma GCC unroll 2
    for (; k < depth; ++k) multiply();
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
  static void micro_rows(int64_t rows, const Args&... args) {
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

  /// to[k][j] = from[k * ld + j].
  template <int W>
  static void pack_straight(const T* from, int64_t ld, int64_t depth, int64_t width, float* to) {
    for (int64_t k = 0; k < depth; k += pair, to += W) {
      const T* row = from + k * ld;
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

  /// A block of rows of op(A), depth [k0, k0 + depth): where it lies, or packed.
  struct Rows {
    const float* at;
    int64_t ld;   // units from row to row; of no meaning in panels
    bool panels;  // [units][mr] each
  };

  /// Rows of A or C whose distance is a multiple of 4096 bytes lie in one set of the first cache, which has 8
  /// ways or more: mr of them at a time would evict each other.
  static constexpr int few_rows = std::min(mr, 8);
  static int rows_at_once(const Rows& a, int64_t ldc) {
    return !a.panels && (a.ld % 1024 == 0 || ldc % 1024 == 0) ? few_rows : mr;
  }

  static Rows rows_of_a(const Gemm& op, int64_t k0, int64_t depth, int64_t row, int64_t rows, float* memory) {
    const T* a = op.a.as<T>();
    if (op.transpose_a) {
      for (int64_t i = 0; i < rows; i += mr)
        pack_straight<mr>(a + k0 * op.lda + row + i, op.lda, depth, std::min<int64_t>(mr, rows - i),
                          memory + units(depth) * i);
      return {memory, 0, true};
    }
    const T* first = a + row * op.lda + k0;
    if (!copies_a(op, pair) && depth % pair == 0)
      return {reinterpret_cast<const float*>(first), op.lda / pair, false};
    for (int64_t i = 0; i < rows; ++i) {
      const T* from = first + i * op.lda;
      float* to = memory + i * units(depth);
#pragma omp simd
      for (int64_t u = 0; u < depth / pair; ++u) to[u] = unit(from + u * pair, 1, true);
      if (depth % pair) to[depth / pair] = unit(from + depth - 1, 1, false);
    }
    return {memory, units(depth), false};
  }

  /// A block of rows (in the second cache) times the packed columns; c: its first row and the tile's first
  /// column.
  static void block(int64_t depth, int64_t rows, int64_t columns, const Rows& a, const float* packed_b,
                    float* c, int64_t ldc, Update update) {
    const int step = rows_at_once(a, ldc);
    for (int64_t j = 0; j < columns; j += nr) {
      const float* panel = packed_b + j * units(depth);
      const int64_t width = std::min<int64_t>(nr, columns - j);
      for (int64_t i = 0; i < rows; i += step) {
        float* to = c + i * ldc + j;
        const int64_t height = std::min<int64_t>(step, rows - i);
        if (a.panels)
          micro_rows<true, Nothing>(height, units(depth), a.at + i * units(depth), int64_t{0}, panel, to, ldc,
                                    width, update.of_column(j), Nothing{});
        else
          micro_rows<false, Nothing>(height, units(depth), a.at + i * a.ld, a.ld, panel, to, ldc, width,
                                     update.of_column(j), Nothing{});
      }
    }
  }

  /// The tile's sums over pieces [first, last) of K, added to or written over `c`; panels(piece) is where
  /// that piece's part of op(B) lies packed.
  template <class Panels>
  static void sum(const Gemm& op, const GemmTile& tile, int64_t first, int64_t last, const Panels& panels,
                  float* c, int64_t ldc, const float* bias) {
    alignas(64) float memory[block_rows * gemm_max_depth];
    const GemmPieces pieces(op.k, pair);
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t k0 = piece * pieces.depth, depth = std::min(pieces.depth, op.k - k0);
      const Update update = update_of(op, pieces, piece, bias);
      const float* packed_b = panels(piece);
      for (int64_t i = 0; i < tile.rows; i += block_rows) {
        const int64_t rows = std::min(block_rows, tile.rows - i);
        const Rows a = rows_of_a(op, k0, depth, tile.row + i, rows, memory);
        block(depth, rows, tile.columns, a, packed_b, c + i * ldc, ldc, update);
      }
    }
  }

  /// The memory of a panel that is packed next: `rows` rows of B, of which a call of micro() asks for some.
  struct NextPanel {
    const T* at;
    int64_t ld, rows, of_call;
    Ahead lines;
    Ahead lines_of(int64_t call) const {
      return {at + std::min(call * of_call, std::max<int64_t>(rows - of_call, 0)) * ld, lines.gap,
              lines.step};
    }
  };
  static NextPanel next_panel(const Gemm& op, int64_t k0, int64_t depth, int64_t column) {
    constexpr int64_t line = 64 / sizeof(T);
    const int64_t ld = op.ldb, steps = units(depth) / ahead_every;
    const T* b = op.b.as<T>();
    if (op.transpose_b) {  // rows are the panel's columns, two for each call
      const int64_t columns = std::min<int64_t>(nr, op.n - column);
      return {b + column * ld + k0, ld, columns, 2, {nullptr, ld, line}};
    }
    b += k0 * ld + column;
    if (nr > line) return {b, ld, depth, steps, {nullptr, line, ld}};
    return {b, ld, depth, 2 * steps, {nullptr, ld, 2 * ld}};
  }

  /// With few rows packing op(B) is much of the work, and most of that is waiting for memory. So it is done
  /// panel by panel, and while one is multiplied the next one's memory is on its way into the second cache,
  /// where the rows of A are, too. That is up to 256 rows of a product; 512 where B's columns are not
  /// contiguous, because those are waited for longer (docs/performance.md).
  static bool by_panels(const Gemm& op) {
    const int64_t few = op.transpose_b ? 256 : 512;
    return op.m <= few && !copies_a(op, pair) && op.k % pair == 0;
  }
  static void sum_by_panels(const Gemm& op, const GemmTile& tile, float* c, int64_t ldc, const float* bias) {
    alignas(64) float panel[nr * gemm_max_depth];
    const GemmPieces pieces(op.k, pair);
    for (int64_t piece = 0; piece < pieces.count; ++piece) {
      const int64_t k0 = piece * pieces.depth, depth = std::min(pieces.depth, op.k - k0);
      const Update update = update_of(op, pieces, piece, bias);
      const Rows a = rows_of_a(op, k0, depth, tile.row, tile.rows, nullptr);
      const int step = rows_at_once(a, ldc);
      for (int64_t j = 0; j < tile.columns; j += nr) {
        const int64_t columns = std::min<int64_t>(nr, tile.columns - j);
        pack_b(op, k0, depth, tile.column + j, columns, panel);
        // Behind the last panel comes the next piece's first one; behind that nothing, and any will do.
        const bool last = j + nr >= tile.columns;
        const int64_t k1 = last && piece + 1 < pieces.count ? k0 + depth : k0;
        const NextPanel next =
            next_panel(op, k1, std::min(pieces.depth, op.k - k1), last ? tile.column : tile.column + j + nr);
        for (int64_t i = 0; i < tile.rows; i += step)
          micro_rows<false, Ahead>(std::min<int64_t>(step, tile.rows - i), units(depth), a.at + i * a.ld,
                                   a.ld, panel, c + i * ldc + j, ldc, columns, update.of_column(j),
                                   next.lines_of(i / step));
      }
    }
  }

  /// sum(c, ldc, bias) writes the tile's sums, or adds them, in fp32.
  static void run(const Gemm& op, const GemmTile& tile, const auto& sum) {
    const C* bias = op.bias ? op.bias.as<C>() + tile.column : nullptr;
    C* c = op.c.as<C>() + tile.row * op.ldc + tile.column;
    if constexpr (std::is_same_v<C, float>) {
      sum(c, op.ldc, bias);
    } else {
      alignas(64) float sums[gemm_max_rounded], widened[gemm_round_columns];
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
      if (by_panels(op)) return sum_by_panels(op, tile, c, ldc, bias);
      alignas(64) float packed[max_panels * nr * gemm_max_depth];
      const GemmPieces pieces(op.k, pair);
      const auto pack = [&](int64_t piece) {
        const int64_t k0 = piece * pieces.depth;
        pack_b(op, k0, std::min(pieces.depth, op.k - k0), tile.column, tile.columns, packed);
        return packed;
      };
      sum(op, tile, 0, pieces.count, pack, c, ldc, bias);
    });
  }

  /// Where a piece's panels begin in a round's memory.
  static float* panels_of(const GemmRound& round, const GemmPieces& pieces, int64_t piece) {
    const int64_t panels = (round.columns + nr - 1) / nr;
    return round.panels + (piece - round.piece) * panels * nr * units(pieces.depth);
  }
  static void pack(const Gemm& op, const GemmRound& round, int64_t piece, int64_t first, int64_t last) {
    const GemmPieces pieces(op.k, pair);
    const int64_t k0 = piece * pieces.depth, depth = std::min(pieces.depth, op.k - k0);
    pack_b(op, k0, depth, round.column + first * nr, std::min(last * nr, round.columns) - first * nr,
           panels_of(round, pieces, piece) + first * nr * units(depth));
  }
  static void multiply(const Gemm& op, const GemmRound& round, int64_t row, int64_t rows) {
    const GemmPieces pieces(op.k, pair);
    const GemmTile tile{row, rows, round.column, round.columns};
    run(op, tile, [&](float* c, int64_t ldc, const float* bias) {
      sum(
          op, tile, round.piece, round.piece + round.pieces,
          [&](int64_t piece) { return panels_of(round, pieces, piece); }, c, ldc, bias);
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
  static void pack(const Gemm& op, const GemmRound& round, int64_t piece, int64_t first, int64_t last) {
    with(op, [&](auto panels) { panels.pack(op, round, piece, first, last); });
  }
  static void multiply(const Gemm& op, const GemmRound& round, int64_t row, int64_t rows) {
    with(op, [&](auto panels) { panels.multiply(op, round, row, rows); });
  }
  static constexpr GemmCode code{Isa::rows, Isa::lanes* Isa::vectors, Isa::pair, tile, pack, multiply};
};

}  // namespace

}  // namespace triax::cpu
