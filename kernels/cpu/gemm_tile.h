#pragma once

#include <cstdint>

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
void gemm_tile_avx2(const Gemm& op, const GemmTile& tile);
void gemm_tile_generic(const Gemm& op, const GemmTile& tile);

/// What this processor runs best.
GemmTileFunction gemm_tile_function();

constexpr int64_t gemm_max_columns = 384;  ///< most columns of a tile
constexpr int64_t gemm_max_depth = 384;    ///< most of K between two updates of C

}  // namespace triax::cpu
