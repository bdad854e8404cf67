#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/elements.h"

namespace triax::cuda {

// Tiles of bf16 rows in shared memory and what a warp multiplies from them on tensor cores. A tile is
// [rows][D]; its 16-byte chunks are permuted within a row by the row's number, so that neither the eight rows
// that ldmatrix reads at once nor the lanes that write a row meet in one bank.

inline constexpr int tile_threads = 128;  ///< of a block: four warps

/// Chunk `chunk` (8 elements) of a row.
template <int D>
__device__ inline bf16* chunk_of(bf16* tile, int row, int chunk) {
  return tile + row * D + ((chunk ^ (row & 7)) * 8);
}

/// Begins to copy rows [first, first + Rows) of a matrix into a tile; zeros from row `end` on. `from` and
/// `stride` are multiples of 16 bytes.
template <int Rows, int D>
__device__ inline void load_tile(bf16* tile, const bf16* from, int64_t stride, int64_t first, int64_t end) {
  constexpr int chunks = D / 8;
#pragma unroll
  for (int i = 0; i < Rows * chunks / tile_threads; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * tile_threads, row = item / chunks, c = item % chunks;
    const bool valid = first + row < end;
    copy_async(chunk_of<D>(tile, row, c), from + (valid ? (first + row) * stride : 0) + c * 8, valid);
  }
}

/// c += A B^T for 16 rows of tile A from `row` on and the first N rows of tile B; fragments of mma(): N / 8
/// of them side by side.
template <int D, int N>
__device__ inline void multiply_rows(float (&c)[N / 8][4], bf16* a, int row, bf16* b) {
  const int lane = static_cast<int>(threadIdx.x % 32), matrix = lane / 8, in_matrix = lane % 8;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t of_a[4];
    load_matrices(of_a, chunk_of<D>(a, row + (matrix & 1) * 8 + in_matrix, k * 2 + (matrix >> 1)));
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t of_b[4];
      load_matrices(of_b, chunk_of<D>(b, n * 16 + (matrix >> 1) * 8 + in_matrix, k * 2 + (matrix & 1)));
      mma(c[2 * n], of_a, of_b[0], of_b[1]);
      mma(c[2 * n + 1], of_a, of_b[2], of_b[3]);
    }
  }
}

/// o += P B for P [16, N] in fragments and the first N rows of tile B.
template <int D, int N>
__device__ inline void add_weighted_rows(float (&o)[D / 8][4], const uint32_t (&p)[N / 16][4], bf16* b) {
  const int lane = static_cast<int>(threadIdx.x % 32), matrix = lane / 8, in_matrix = lane % 8;
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t of_b[4];
      load_matrices_transposed(of_b,
                               chunk_of<D>(b, k * 16 + (matrix & 1) * 8 + in_matrix, n * 2 + (matrix >> 1)));
      mma(o[2 * n], p[k], of_b[0], of_b[1]);
      mma(o[2 * n + 1], p[k], of_b[2], of_b[3]);
    }
  }
}

/// A result of multiply_rows() as the left operand of add_weighted_rows(), rounded to bf16: the lane holds
/// the same elements in both.
template <int N>
__device__ inline void to_operand(const float (&c)[N / 8][4], uint32_t (&p)[N / 16][4]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    p[k][0] = pack_bf16(c[2 * k][0], c[2 * k][1]);
    p[k][1] = pack_bf16(c[2 * k][2], c[2 * k][3]);
    p[k][2] = pack_bf16(c[2 * k + 1][0], c[2 * k + 1][1]);
    p[k][3] = pack_bf16(c[2 * k + 1][2], c[2 * k + 1][3]);
  }
}

/// Writes a warp's 16 rows (o times upper for its first eight, times lower for the others) to rows [first,
/// first + 16) of a matrix, those before `end`. Goes through 16 rows of a tile, from `row` on, that no other
/// warp uses.
template <int D>
__device__ inline void store_rows(const float (&o)[D / 8][4], float upper, float lower, bf16* tile, int row,
                                  bf16* to, int64_t stride, int64_t first, int64_t end) {
  const int lane = static_cast<int>(threadIdx.x % 32), group = lane / 4, pair = 2 * (lane % 4);
  __syncwarp();  // all lanes have read what the rows held
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    *reinterpret_cast<uint32_t*>(chunk_of<D>(tile, row + group, n) + pair) =
        pack_bf16(o[n][0] * upper, o[n][1] * upper);
    *reinterpret_cast<uint32_t*>(chunk_of<D>(tile, row + group + 8, n) + pair) =
        pack_bf16(o[n][2] * lower, o[n][3] * lower);
  }
  __syncwarp();
  constexpr int chunks = D / 8;
#pragma unroll
  for (int i = 0; i < 16 * chunks / 32; ++i) {
    const int item = lane + 32 * i, r = item / chunks, c = item % chunks;
    if (first + r < end)
      *reinterpret_cast<uint4*>(to + (first + r) * stride + c * 8) =
          *reinterpret_cast<const uint4*>(chunk_of<D>(tile, row + r, c));
  }
}

}  // namespace triax::cuda
