#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "kernels/kernels.h"

namespace triax::cpu {

/// One piece of a product: rows [row, row + rows) and columns [column, column + columns) of C, with all of K.
struct GemmTile {
  int64_t row, rows, column, columns;
};

/// Computes a piece for one instruction set. The value of an element of C is a function of its row of op(A),
/// its column of op(B) and K alone, so that any cut of C into tiles gives the same bits.
using GemmTileFunction = void (*)(const Gemm&, const GemmTile&);
void gemm_tile_avx512(const Gemm& op, const GemmTile& tile);
void gemm_tile_avx512_bf16(const Gemm& op, const GemmTile& tile);  ///< bf16 operands alone
void gemm_tile_avx2(const Gemm& op, const GemmTile& tile);
void gemm_tile_generic(const Gemm& op, const GemmTile& tile);

/// What this processor runs best for operands of this type. bf16 is multiplied as it is where there is an
/// instruction for it (AVX512-BF16: 1.8 times the rate of fp32, `triax bench kernels`), else converted to
/// fp32 while it is packed.
GemmTileFunction gemm_tile_function(DType operands);
/// Whether this processor has vdpbf16ps.
bool has_avx512_bf16();

/// The whole product by this function, cut into tiles over the device's threads.
void gemm_by(Device& device, const Gemm& op, GemmTileFunction tile);

constexpr int64_t gemm_max_columns = 384;  ///< most columns of a tile
constexpr int64_t gemm_max_depth = 384;    ///< most of K between two updates of C
/// Most rows of a tile whose C is rounded: its sums are kept on the stack until all of K is in.
constexpr int64_t gemm_max_rounded_rows = 672;

}  // namespace triax::cpu
