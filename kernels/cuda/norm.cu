#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/limits.h"
#include "kernels/cuda/reductions.h"

namespace triax::cuda {

namespace {

// A row lies in the registers of a warp (short rows: several warps in a block) or of a block: it is read
// once. Which of them is decided by the shape alone.
constexpr int kElements = 32;  // of a thread
constexpr int kRowWarps = 4;   // of a block whose warps have a row each
constexpr int kMaxThreads = norm_max_row / kElements;

template <int W>
struct Row {
  static constexpr int packs = kElements / W;
  int64_t t;
  int first, stride;  // the thread's columns: first + p * stride

  /// Null rows (t >= rows) are those of whole warps.
  __device__ explicit Row(bool warp_each) {
    const int thread = static_cast<int>(threadIdx.x);
    t = warp_each ? int64_t{blockIdx.x} * kRowWarps + thread / 32 : int64_t{blockIdx.x};
    first = (warp_each ? thread % 32 : thread) * W;
    stride = (warp_each ? 32 : static_cast<int>(blockDim.x)) * W;
  }
};

struct RowLaunch {
  bool warp_each;
  unsigned grid, threads;
};

template <int W>
RowLaunch row_launch(int64_t t, int64_t h) {
  const int64_t threads = pieces(pieces(h, kElements), 32) * 32;
  check(threads <= kMaxThreads, "a norm over {} elements: the GPU's kernels take up to {}", h, norm_max_row);
  const bool warp_each = threads == 32;
  return {warp_each, blocks(warp_each ? pieces(t, kRowWarps) : t),
          static_cast<unsigned>(warp_each ? 32 * kRowWarps : threads)};
}

template <bool WarpEach>
__device__ inline float row_sum(float x) {
  if constexpr (WarpEach)
    return warp_sum(x);
  else
    return block_sum(x);
}

template <class T, int W>
__global__ void add_rows(int64_t h, int cuts, const T* x, const T* delta, const T* bias, T* y) {
  visit_row<W>(h, cuts, [&](int64_t t, int64_t c) {
    float a[W], d[W], b[W];
    load(delta + t * h + c, d);
    if (bias) {
      load(bias + c, b);
#pragma unroll
      for (int k = 0; k < W; ++k) d[k] += b[k];
    }
    if (x) {
      load(x + t * h + c, a);
#pragma unroll
      for (int k = 0; k < W; ++k) d[k] = a[k] + d[k];
    }
    store(y + t * h + c, d);
  });
}

template <class T>
struct Forward {
  int64_t t;
  int h;
  const T *x, *delta, *delta_bias;
  T* residual;
  const T *weight, *bias;
  float epsilon;
  T* y;
  float *mean, *rstd;
};

template <class T, int W, bool WarpEach>
__global__ void __launch_bounds__(WarpEach ? 32 * kRowWarps : kMaxThreads) normalise(Forward<T> op) {
  const Row<W> row(WarpEach);
  if (row.t >= op.t) return;
  const int64_t base = row.t * op.h;
  float r[Row<W>::packs][W];
  float sum = 0;
#pragma unroll
  for (int p = 0; p < Row<W>::packs; ++p) {
    const int c = row.first + p * row.stride;
    if (c >= op.h) continue;
    load(op.x + base + c, r[p]);
    if (op.delta) {
      float d[W], b[W];
      load(op.delta + base + c, d);
      if (op.delta_bias) {
        load(op.delta_bias + c, b);
#pragma unroll
        for (int k = 0; k < W; ++k) d[k] += b[k];
      }
#pragma unroll
      for (int k = 0; k < W; ++k) r[p][k] = round_to<T>(r[p][k] + d[k]);
      store(op.residual + base + c, r[p]);
    }
#pragma unroll
    for (int k = 0; k < W; ++k) sum += r[p][k];
  }
  // In two passes, so that the variance does not cancel.
  const float inverse_h = 1.0f / static_cast<float>(op.h);
  const float mean = op.mean ? row_sum<WarpEach>(sum) * inverse_h : 0;
  float squares = 0;
#pragma unroll
  for (int p = 0; p < Row<W>::packs; ++p) {
    if (row.first + p * row.stride >= op.h) continue;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      r[p][k] -= mean;
      squares += r[p][k] * r[p][k];
    }
  }
  const float rstd = 1.0f / sqrtf(row_sum<WarpEach>(squares) * inverse_h + op.epsilon);
#pragma unroll
  for (int p = 0; p < Row<W>::packs; ++p) {
    const int c = row.first + p * row.stride;
    if (c >= op.h) continue;
    float w[W], b[W];
    load(op.weight + c, w);
#pragma unroll
    for (int k = 0; k < W; ++k) r[p][k] *= rstd * w[k];
    if (op.bias) {
      load(op.bias + c, b);
#pragma unroll
      for (int k = 0; k < W; ++k) r[p][k] += b[k];
    }
    store(op.y + base + c, r[p]);
  }
  if (row.first == 0) {
    if (op.mean) op.mean[row.t] = mean;
    op.rstd[row.t] = rstd;
  }
}

template <class T>
struct BackwardInput {
  int64_t t;
  int h;
  const T *dy, *residual, *weight;
  const float *mean, *rstd;
  const T* dr;
  T* dx;
};

/// With g = dy * weight: dx = dr + rstd * (g - mean(g) - xhat * mean(g * xhat)); RMSNorm has no mean(g).
template <class T, int W, bool WarpEach>
__global__ void __launch_bounds__(WarpEach ? 32 * kRowWarps : kMaxThreads)
    backward_input(BackwardInput<T> op) {
  const Row<W> row(WarpEach);
  if (row.t >= op.t) return;
  const int64_t base = row.t * op.h;
  const float rstd = op.rstd[row.t], mean = op.mean ? op.mean[row.t] : 0;
  float g[Row<W>::packs][W], x[Row<W>::packs][W];
  float sum = 0, dot = 0;
#pragma unroll
  for (int p = 0; p < Row<W>::packs; ++p) {
    const int c = row.first + p * row.stride;
    if (c >= op.h) continue;
    float w[W];
    load(op.dy + base + c, g[p]);
    load(op.residual + base + c, x[p]);
    load(op.weight + c, w);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      g[p][k] *= w[k];
      x[p][k] -= mean;
      sum += g[p][k];
      dot += g[p][k] * x[p][k];
    }
  }
  const float inverse_h = 1.0f / static_cast<float>(op.h);
  const float mean_g = op.mean ? row_sum<WarpEach>(sum) * inverse_h : 0;
  const float slope = row_sum<WarpEach>(dot) * rstd * inverse_h * rstd;
#pragma unroll
  for (int p = 0; p < Row<W>::packs; ++p) {
    const int c = row.first + p * row.stride;
    if (c >= op.h) continue;
    float d[W];
    if (op.dr) {
      load(op.dr + base + c, d);
    } else {
#pragma unroll
      for (int k = 0; k < W; ++k) d[k] = 0;
    }
#pragma unroll
    for (int k = 0; k < W; ++k) d[k] += rstd * (g[p][k] - mean_g - x[p][k] * slope);
    store(op.dx + base + c, d);
  }
}

template <class T>
struct WeightColumns {
  const T *dy, *residual;
  const float *mean, *rstd;
  int64_t h;

  template <int W>
  __device__ void add(int64_t t, int64_t c, float (&sums)[2][W]) const {
    float d[W], r[W];
    load(dy + t * h + c, d);
    load(residual + t * h + c, r);
    const float m = mean ? mean[t] : 0, s = rstd[t];
#pragma unroll
    for (int k = 0; k < W; ++k) {
      sums[0][k] += d[k] * ((r[k] - m) * s);
      sums[1][k] += d[k];
    }
  }
};

}  // namespace

void residual_add(Device& device, const ResidualAdd& op) {
  if (op.t == 0 || op.h == 0) return;
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *x = op.x.as<T>(), *delta = op.delta.as<T>(), *bias = op.bias.as<T>();
    T* y = op.y.as<T>();
    with_width<vector_of<T>>(op.h % vector_of<T> == 0 && aligned16(x, delta, bias, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.h);
      launch("residual add", cuda_device(device), add_rows<T, w>, grid.grid, grid.threads, 0, op.h,
             grid.pieces, x, delta, bias, y);
    });
  });
}

void norm_forward(Device& device, const NormForward& op) {
  if (op.t == 0) return;
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const Forward<T> f{op.t,
                       static_cast<int>(op.h),
                       op.x.as<T>(),
                       op.delta.as<T>(),
                       op.delta_bias.as<T>(),
                       op.residual.as<T>(),
                       op.weight.as<T>(),
                       op.bias.as<T>(),
                       op.epsilon,
                       op.y.as<T>(),
                       op.mean,
                       op.rstd};
    const bool vector =
        op.h % vector_of<T> == 0 &&
        aligned16(f.x, f.delta, f.delta_bias, f.delta ? f.residual : nullptr, f.weight, f.bias, f.y);
    with_width<vector_of<T>>(vector, [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowLaunch l = row_launch<w>(op.t, op.h);
      launch("norm", cuda_device(device), l.warp_each ? normalise<T, w, true> : normalise<T, w, false>,
             l.grid, l.threads, 0, f);
    });
  });
}

void norm_backward_input(Device& device, const NormBackwardInput& op) {
  if (op.t == 0) return;
  with_element_type(op.dx.dtype(), [&](auto type) {
    using T = decltype(type);
    const BackwardInput<T> b{
        op.t,    static_cast<int>(op.h), op.dy.as<T>(), op.residual.as<T>(), op.weight.as<T>(), op.mean,
        op.rstd, op.dr.as<T>(),          op.dx.as<T>()};
    with_width<vector_of<T>>(op.h % vector_of<T> == 0 && aligned16(b.dy, b.residual, b.weight, b.dr, b.dx),
                             [&](auto width) {
                               constexpr int w = decltype(width)::value;
                               const RowLaunch l = row_launch<w>(op.t, op.h);
                               launch("norm backward", cuda_device(device),
                                      l.warp_each ? backward_input<T, w, true> : backward_input<T, w, false>,
                                      l.grid, l.threads, 0, b);
                             });
  });
}

void norm_backward_weight(Device& device, const NormBackwardWeight& op) {
  with_element_type(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const WeightColumns<T> columns{op.dy.as<T>(), op.residual.as<T>(), op.mean, op.rstd, op.h};
    column_sums<vector_of<T>, 2>("norm weight gradient", cuda_device(device), op.t, op.h,
                                 aligned16(columns.dy, columns.residual), columns, op.dweight, op.dbias);
  });
}

}  // namespace triax::cuda
