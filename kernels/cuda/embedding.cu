#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/limits.h"
#include "kernels/cuda/reductions.h"

namespace triax::cuda {

namespace {

template <class T, int W>
__global__ void gather(int64_t h, int cuts, int64_t rows, int64_t first_row, const int32_t* ids,
                       const T* table, T* y) {
  visit_row<W>(h, cuts, [&](int64_t t, int64_t c) {
    const int64_t row = ids[t] - first_row;
    float v[W] = {};
    if (row >= 0 && row < rows) load(table + row * h + c, v);
    store(y + t * h + c, v);
  });
}

// The gradient of the table, without atomics on floats: the first token of each id adds up all of its id's
// tokens, in ascending order. Which it is, and how many there are, is found by integer atomics on two words
// per row.

/// Words of a row of the table, in the workspace.
struct Occurrence {
  int first, count;
};
static_assert(sizeof(Occurrence) == embedding_row_bytes);

__global__ void forget(int64_t t, int64_t rows, int64_t first_row, const int32_t* ids, Occurrence* of_row) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= t) return;
  const int64_t row = ids[i] - first_row;
  if (row >= 0 && row < rows) of_row[row] = {0x7fffffff, 0};
}

__global__ void count(int64_t t, int64_t rows, int64_t first_row, const int32_t* ids, Occurrence* of_row) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= t) return;
  const int64_t row = ids[i] - first_row;
  if (row < 0 || row >= rows) return;
  atomicMin(&of_row[row].first, static_cast<int>(i));
  atomicAdd(&of_row[row].count, 1);
}

constexpr int kAtOnce = 4;  // rows of an id

/// A warp has a token and 32 packs of columns; only an id's first token does anything.
template <class T, int W>
__global__ void scatter(int64_t tokens, int64_t h, int64_t rows, int64_t first_row, const int32_t* ids,
                        const T* dy, const Occurrence* of_row, float* dtable) {
  const int64_t t = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (t >= tokens) return;
  const int32_t id = ids[t];
  const int64_t row = id - first_row;
  if (row < 0 || row >= rows || of_row[row].first != t) return;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t c = (int64_t{blockIdx.y} * 32 + lane) * W;
  float sum[W] = {};
  if (c < h) load(dtable + row * h + c, sum);
  int left = of_row[row].count;
  for (int64_t base = t; left > 0; base += 32) {
    unsigned found = __ballot_sync(full_warp, base + lane < tokens && ids[base + lane] == id);
    left -= __popc(found);
    while (found != 0) {
      // Several rows are under way at once: a text's commonest token has thousands.
      float d[kAtOnce][W];
      int rows_of_id = 0;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (found == 0) continue;
        const int64_t at = base + __ffs(static_cast<int>(found)) - 1;
        found &= found - 1;
        rows_of_id = j + 1;
        if (c < h) load(dy + at * h + c, d[j]);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (j < rows_of_id && c < h) {
#pragma unroll
          for (int k = 0; k < W; ++k) sum[k] += d[j][k];
        }
    }
  }
  if (c < h) store(dtable + row * h + c, sum);
}

template <class T, int W>
__global__ void add_positions(int64_t s, int64_t h, int64_t first, int cuts, const T* positions, T* y) {
  visit_row<W>(h, cuts, [&](int64_t t, int64_t c) {
    float v[W], p[W];
    load(y + t * h + c, v);
    load(positions + (first + t) % s * h + c, p);
#pragma unroll
    for (int k = 0; k < W; ++k) v[k] += p[k];
    store(y + t * h + c, v);
  });
}

template <class T, int W>
__global__ void sum_positions(int64_t tokens, int64_t s, int64_t h, int64_t first, int cuts, const T* dy,
                              float* dpositions) {
  visit_row<W>(h, cuts, [&](int64_t position, int64_t c) {
    float sum[W];
    load(dpositions + position * h + c, sum);
    for (int64_t t = (position - first % s + s) % s; t < tokens; t += s) {
      float d[W];
      load(dy + t * h + c, d);
#pragma unroll
      for (int k = 0; k < W; ++k) sum[k] += d[k];
    }
    store(dpositions + position * h + c, sum);
  });
}

}  // namespace

void embedding_forward(Device& device, const EmbeddingForward& op) {
  if (op.t == 0 || op.h == 0) return;
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* table = op.table.as<T>();
    T* y = op.y.as<T>();
    with_width<vector_of<T>>(op.h % vector_of<T> == 0 && aligned16(table, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.h);
      launch("embedding", cuda_device(device), gather<T, w>, grid.grid, grid.threads, 0, op.h, grid.pieces,
             op.rows, op.first_row, op.ids, table, y);
    });
  });
}

void embedding_backward(Device& device, const EmbeddingBackward& op) {
  if (op.t == 0 || op.h == 0 || op.rows == 0) return;
  CudaDevice& gpu = cuda_device(device);
  const auto bytes = static_cast<size_t>(op.rows) * sizeof(Occurrence);
  check(bytes <= cuda_workspace_bytes,
        "the gradient of an embedding of {} rows needs {} bytes of the GPU's workspace of {}; cut the "
        "vocabulary over "
        "more tensor ranks",
        op.rows, bytes, cuda_workspace_bytes);
  auto* of_row = static_cast<Occurrence*>(gpu.workspace());
  const unsigned grid = array_blocks<1>(op.t);
  launch("embedding gradient (clear)", gpu, forget, grid, array_threads, 0, op.t, op.rows, op.first_row,
         op.ids, of_row);
  launch("embedding gradient (count)", gpu, count, grid, array_threads, 0, op.t, op.rows, op.first_row,
         op.ids, of_row);
  with_element_type(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* dy = op.dy.as<T>();
    with_width<vector_of<T>>(op.h % vector_of<T> == 0 && aligned16(dy, op.dtable), [&](auto width) {
      constexpr int w = decltype(width)::value;
      constexpr int warps = 4;
      launch("embedding gradient", gpu, scatter<T, w>,
             dim3(blocks(pieces(op.t, warps)), blocks(pieces(op.h, 32 * w))), dim3(32, warps), 0, op.t, op.h,
             op.rows, op.first_row, op.ids, dy, of_row, op.dtable);
    });
  });
}

void position_forward(Device& device, const PositionForward& op) {
  if (op.t == 0 || op.h == 0) return;
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* positions = op.positions.as<T>();
    T* y = op.y.as<T>();
    with_width<vector_of<T>>(op.h % vector_of<T> == 0 && aligned16(positions, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.h);
      launch("positions", cuda_device(device), add_positions<T, w>, grid.grid, grid.threads, 0, op.s, op.h,
             op.first, grid.pieces, positions, y);
    });
  });
}

void position_backward(Device& device, const PositionBackward& op) {
  if (op.t == 0 || op.h == 0 || op.s == 0) return;
  with_element_type(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* dy = op.dy.as<T>();
    with_width<vector_of<T>>(op.h % vector_of<T> == 0 && aligned16(dy, op.dpositions), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.s, op.h);
      launch("position gradient", cuda_device(device), sum_positions<T, w>, grid.grid, grid.threads, 0, op.t,
             op.s, op.h, op.first, grid.pieces, dy, op.dpositions);
    });
  });
}

}  // namespace triax::cuda
