#pragma once

#include <algorithm>

#include "kernels/cuda/elements.h"

namespace triax::cuda {

// Sums over the rows of a matrix, column by column, in an order of the shape alone: chunks of rows are summed
// in fp32 by blocks of their own, then the chunks in double.

inline constexpr int column_lanes = 32, column_rows = 8;  ///< a block's threads: across, down
inline constexpr int64_t column_chunk = 64;               ///< rows of a chunk, at least

/// partials[chunk][sum][column] for Sums sums. columns.add<W>(row, column, sums) adds one row's addends.
template <int W, int Sums, class Columns>
__global__ void __launch_bounds__(column_lanes* column_rows)
    sum_chunks(int64_t rows, int64_t width, int64_t chunk, Columns columns, float* partials) {
  __shared__ float shared[Sums][column_rows][column_lanes * W];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int64_t first = int64_t{blockIdx.x} * column_lanes * W, column = first + x * W;
  const int64_t begin = int64_t{blockIdx.y} * chunk, end = begin + chunk < rows ? begin + chunk : rows;
  float sums[Sums][W] = {};
  if (column < width) {
#pragma unroll 4
    for (int64_t row = begin + y; row < end; row += column_rows) columns.template add<W>(row, column, sums);
  }
#pragma unroll
  for (int s = 0; s < Sums; ++s)
#pragma unroll
    for (int k = 0; k < W; ++k) shared[s][y][x * W + k] = sums[s][k];
  __syncthreads();
  const int thread = y * column_lanes + x;
  for (int i = thread; i < Sums * column_lanes * W; i += column_lanes * column_rows) {
    const int s = i / (column_lanes * W), c = i % (column_lanes * W);
    if (first + c >= width) continue;
    float total = 0;
#pragma unroll
    for (int down = 0; down < column_rows; ++down) total += shared[s][down][c];
    partials[(int64_t{blockIdx.y} * Sums + s) * width + first + c] = total;
  }
}

/// out[column] += sum over chunks of partials[chunk][blockIdx.y][column].
template <int Sums>
__global__ void __launch_bounds__(column_lanes* column_rows)
    add_chunks(int64_t chunks, int64_t width, const float* partials, float* out0, float* out1) {
  __shared__ double shared[column_rows][column_lanes];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int64_t column = int64_t{blockIdx.x} * column_lanes + x, s = blockIdx.y;
  double sum = 0;
  if (column < width) {
#pragma unroll 4
    for (int64_t chunk = y; chunk < chunks; chunk += column_rows)
      sum += partials[(chunk * Sums + s) * width + column];
  }
  shared[y][x] = sum;
  __syncthreads();
  if (y != 0 || column >= width) return;
  double total = 0;
#pragma unroll
  for (int down = 0; down < column_rows; ++down) total += shared[down][x];
  (s == 0 ? out0 : out1)[column] += static_cast<float>(total);
}

/// out0[c] += the first sum over `rows` rows, out1[c] += the second (may be null); in packs of Vector columns
/// where `aligned` and the width allow.
template <int Vector, int Sums, class Columns>
void column_sums(const char* name, CudaDevice& device, int64_t rows, int64_t width, bool aligned,
                 const Columns& columns, float* out0, float* out1 = nullptr) {
  if (rows == 0 || width == 0) return;
  const int64_t room = static_cast<int64_t>(cuda_workspace_bytes / sizeof(float)) / (Sums * width);
  check(room > 0, "{} over {} columns: more than the GPU's workspace of {} bytes has room for", name, width,
        cuda_workspace_bytes);
  const int64_t most = std::min<int64_t>(room, 512);
  const int64_t chunk = std::max(column_chunk, pieces(rows, most)), chunks = pieces(rows, chunk);
  auto* partials = static_cast<float*>(device.workspace());
  const dim3 block(column_lanes, column_rows);
  with_width<Vector>(aligned && width % Vector == 0, [&](auto w) {
    constexpr int W = decltype(w)::value;
    launch(name, device, sum_chunks<W, Sums, Columns>,
           dim3(blocks(pieces(width, column_lanes * W)), blocks(chunks)), block, 0, rows, width, chunk,
           columns, partials);
  });
  launch(name, device, add_chunks<Sums>, dim3(blocks(pieces(width, column_lanes)), out1 ? 2 : 1), block, 0,
         chunks, width, partials, out0, out1);
}

}  // namespace triax::cuda
