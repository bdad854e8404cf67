#pragma once

#include <algorithm>
#include <cstdint>

#include "core/bf16.h"
#include "kernels/kernels.h"

namespace triax::cpu {

/// One piece of a product: rows [row, row + rows) and columns [column, column + columns) of C, with all of K.
struct GemmTile {
  int64_t row, rows, column, columns;
};

/// How many pieces of `size` cover n; at least 1.
inline int64_t pieces_of(int64_t n, int64_t size) {
  return std::max<int64_t>(1, (n + size - 1) / size);
}

/// K is summed in pieces of equal depth, by a rule of K alone: the cuts are part of the result's bits.
struct GemmPieces {
  explicit GemmPieces(int64_t k, int pair);
  int64_t count;  ///< at least 1, also where K is 0
  int64_t depth;  ///< of each but the last, which may have less; a multiple of `pair`
};

/// A product for one instruction set. The value of an element of C is a function of its row of op(A), its
/// column of op(B) and K alone, so that any cut of C into tiles gives the same bits.
struct GemmCode {
  int pair;  ///< elements that are packed as one unit of 32 bits
  /// Packs its columns of op(B), and copies its rows of op(A) where copies_a(), at most gemm_max_copied.
  /// Where C is not f32 it has at most gemm_max_rounded elements and gemm_max_columns columns. Else an Error.
  void (*tile)(const Gemm&, const GemmTile&);
};
extern const GemmCode gemm_avx512, gemm_avx2, gemm_generic;
extern const GemmCode gemm_avx512_bf16;  ///< bf16 operands alone

/// What this processor runs best for operands of this type. bf16 is multiplied as it is where there is an
/// instruction for it (AVX512-BF16: 1.8 times the rate of fp32, `triax bench kernels`), else converted to
/// fp32 while it is packed.
const GemmCode& gemm_code(DType operands);
/// Whether this processor has vdpbf16ps.
bool has_avx512_bf16();

/// Throws unless a tile is small enough.
void gemm_check(bool small, const GemmTile& tile);
/// A tile's memory besides its stack, gemm_memory_floats, of the calling thread and for its life: 0 for what
/// it copies, 1 for sums.
float* gemm_memory(int which);

/// The whole product by this code, over the device's threads.
void gemm_by(Device& device, const Gemm& op, const GemmCode& code);

/// Whether op(A) can't be read where it lies: it is transposed, or bf16 that has to be converted or is not in
/// whole units.
inline bool copies_a(const Gemm& op, int pair) {
  return op.transpose_a ||
         (op.a.dtype() == DType::bf16 && (pair == 1 || op.lda % pair != 0 || op.k % pair != 0));
}

constexpr int64_t gemm_max_columns = 384;     ///< most columns of a tile whose C is rounded
constexpr int64_t gemm_max_depth = 768;       ///< most of K between two updates of C, in units
constexpr int64_t gemm_max_copied = 1 << 18;  ///< rows of a tile times units of depth, where op(A) is copied
/// Least elements of a weight's gradient that goes past the caches to memory: 1 MiB, a core's second cache.
constexpr int64_t gemm_least_streamed = 1 << 18;
/// Most elements of a C that is rounded: its sums are kept in gemm_memory(1) until all of K is in.
constexpr int64_t gemm_max_rounded = 672 * gemm_max_columns;
/// Either of both; copied panels have up to eight rows, some of which the last one may lack.
constexpr int64_t gemm_memory_floats = std::max(gemm_max_copied + 8 * gemm_max_depth, gemm_max_rounded);

}  // namespace triax::cpu
