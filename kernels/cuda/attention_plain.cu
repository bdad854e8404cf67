#include <cmath>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reductions.h"

// Attention in fp32 for any head size: blocked, with an online softmax, on ordinary arithmetic units. A warp
// has four rows of one side (queries; in the keys' gradient, keys) and meets tiles of 32 rows of the other
// side in shared memory: a lane computes the dots with one row of the tile, and owns every 32nd element of
// the four rows' sums. What a row meets beyond the causal diagonal changes none of its bits, so they don't
// depend on which rows share a block.

namespace triax::cuda {

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 4;  // of a warp
constexpr int kBlockRows = kWarps * kRows;
constexpr int kTile = 32;

/// Keys, or values, of a head in rows.
template <class T>
struct InRows {
  static constexpr bool positions_innermost = false;
  const T* data;
  int64_t stride;
  __device__ float at(int64_t row, int d) const { return widen(data[row * stride + d]); }
};
/// Keys of a head as a cache holds them: blocks of positions, innermost.
template <class T>
struct InBlocks {
  static constexpr bool positions_innermost = true;
  const T* data;
  int head_size;
  __device__ float at(int64_t row, int d) const {
    return widen(data[(row / cache_block * head_size + d) * cache_block + row % cache_block]);
  }
};

/// Rows [first, first + rows) to tile[row][pitch], zero from row `end` on.
template <class Source>
__device__ inline void load_rows(float* tile, int pitch, int rows, const Source& source, int64_t first,
                                 int64_t end, int d) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * d; i += kThreads) {
    const int row = Source::positions_innermost ? i % rows : i / d;
    const int column = Source::positions_innermost ? i / rows : i % d;
    tile[row * pitch + column] = first + row < end ? source.at(first + row, column) : 0.0f;
  }
}

/// dots[r] = rows[r] . tile[lane]
__device__ inline void dot_rows(const float* rows, const float* tile, int pitch, int d,
                                float (&dots)[kRows]) {
  const float* mine = tile + static_cast<int>(threadIdx.x % 32) * pitch;
#pragma unroll
  for (float& dot : dots) dot = 0;
  for (int k = 0; k < d; ++k) {
    const float x = mine[k];
#pragma unroll
    for (int r = 0; r < kRows; ++r) dots[r] += rows[r * d + k] * x;
  }
}

/// sums[r] += sum over the tile's rows of factor[r] (of the row's lane) * row
template <int Parts>
__device__ inline void add_rows(float (&sums)[kRows][Parts], const float (&factor)[kRows], const float* tile,
                                int pitch, int d) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int j = 0; j < kTile; ++j) {
    float f[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) f[r] = __shfl_sync(full_warp, factor[r], j);
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
      const int k = lane + 32 * part;
      const float x = k < d ? tile[j * pitch + k] : 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][part] += f[r] * x;
    }
  }
}

template <class T, int Parts>
__device__ inline void store_row(T* row, const float (&sums)[Parts], float factor, int d) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int part = 0; part < Parts; ++part) {
    const int k = lane + 32 * part;
    if (k < d) row[k] = narrow<T>(sums[part] * factor);
  }
}

/// One (sequence, head) of the forward: the queries stand at positions first + i.
template <class T, class Keys>
struct Forward {
  int64_t s, first;
  int d;
  float scale;
  InRows<T> queries;
  Keys keys;
  InRows<T> values;
  T* out;
  int64_t out_stride;
  float* lse;  // null: nobody asks
};

template <int Parts, class T, class Keys>
__device__ void forward_block(const Forward<T, Keys>& op) {
  const int d = op.d, pitch = d + 1, warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  auto* q = reinterpret_cast<float*>(dynamic_shared());
  float *k = q + kBlockRows * d, *v = k + kTile * pitch;
  // Late queries see more keys: they go first.
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kBlockRows;
  load_rows(q, d, kBlockRows, op.queries, first, op.s, d);
  float maximum[kRows], denominator[kRows] = {}, sums[kRows][Parts] = {};
#pragma unroll
  for (float& m : maximum) m = -INFINITY;
  const int64_t last_query = first + kBlockRows < op.s ? first + kBlockRows : op.s;
  const int64_t keys = op.first + last_query;
  for (int64_t j = 0; j < keys; j += kTile) {
    __syncthreads();
    load_rows(k, pitch, kTile, op.keys, j, keys, d);
    load_rows(v, pitch, kTile, op.values, j, keys, d);
    __syncthreads();
    float score[kRows];
    dot_rows(q + warp * kRows * d, k, pitch, d, score);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t i = first + warp * kRows + r;
      const float x = i < op.s && j + lane <= op.first + i ? score[r] * op.scale : -INFINITY;
      const float m = fmaxf(maximum[r], warp_max(x)), m_finite = m == -INFINITY ? 0.0f : m;
      const float shrink = expf(maximum[r] - m_finite);
      maximum[r] = m;
      score[r] = expf(x - m_finite);
      denominator[r] = denominator[r] * shrink + warp_sum(score[r]);
#pragma unroll
      for (float& sum : sums[r]) sum *= shrink;
    }
    add_rows(sums, score, v, pitch, d);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t i = first + warp * kRows + r;
    if (i >= op.s) continue;
    store_row(op.out + i * op.out_stride, sums[r], 1.0f / denominator[r], d);
    if (op.lse && lane == 0) op.lse[i] = maximum[r] + logf(denominator[r]);
  }
}

template <class T, int Parts>
__global__ void __launch_bounds__(kThreads)
    forward(int64_t s, int heads, int kv_heads, int d, float scale, const T* qkv, T* out, float* lse) {
  const int64_t head = blockIdx.y, b = blockIdx.z, kv = head / (heads / kv_heads);
  const int64_t stride = int64_t{heads + 2 * kv_heads} * d, row = b * s * stride;
  const InRows<T> keys{qkv + row + (heads + kv) * d, stride},
      values{keys.data + int64_t{kv_heads} * d, stride};
  forward_block<Parts>(Forward<T, InRows<T>>{s,
                                             0,
                                             d,
                                             scale,
                                             {qkv + row + head * d, stride},
                                             keys,
                                             values,
                                             out + b * s * heads * d + head * d,
                                             int64_t{heads} * d,
                                             lse + (b * heads + head) * s});
}

template <class T, int Parts>
__global__ void __launch_bounds__(kThreads)
    cached(int64_t s, int64_t first, int64_t capacity, int heads, int kv_heads, int d, float scale,
           const T* qkv, const T* keys, const T* values, T* out) {
  const int64_t head = blockIdx.y, kv = head / (heads / kv_heads);
  forward_block<Parts>(Forward<T, InBlocks<T>>{s,
                                               first,
                                               d,
                                               scale,
                                               {qkv + head * d, int64_t{heads + 2 * kv_heads} * d},
                                               {keys + kv * capacity * d, d},
                                               {values + kv * capacity * d, d},
                                               out + head * d,
                                               int64_t{heads} * d,
                                               nullptr});
}

/// The pointers of the backward, by sequence and head.
template <class T>
struct Backward {
  int64_t s;
  int heads, kv_heads, d;
  float scale;
  const T *qkv, *dout;
  const float *lse, *delta;
  T* dqkv;

  __device__ int64_t stride() const { return int64_t{heads + 2 * kv_heads} * d; }
  __device__ InRows<T> columns(int64_t b, int64_t head) const {
    return {qkv + b * s * stride() + head * d, stride()};
  }
  __device__ InRows<T> gradients(int64_t b, int64_t head) const {
    return {dout + b * s * heads * d + head * d, int64_t{heads} * d};
  }
};

template <class T, int Parts>
__global__ void __launch_bounds__(kThreads) backward_queries(Backward<T> op) {
  const int64_t head = blockIdx.y, b = blockIdx.z, kv = head / (op.heads / op.kv_heads);
  const int d = op.d, pitch = d + 1, warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  auto* q = reinterpret_cast<float*>(dynamic_shared());
  float *g = q + kBlockRows * d, *k = g + kBlockRows * d, *v = k + kTile * pitch;
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kBlockRows;
  load_rows(q, d, kBlockRows, op.columns(b, head), first, op.s, d);
  load_rows(g, d, kBlockRows, op.gradients(b, head), first, op.s, d);
  float lse[kRows], delta[kRows], sums[kRows][Parts] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t i = first + warp * kRows + r, at = (b * op.heads + head) * op.s + i;
    lse[r] = i < op.s ? op.lse[at] : 0, delta[r] = i < op.s ? op.delta[at] : 0;
  }
  const int64_t keys = first + kBlockRows < op.s ? first + kBlockRows : op.s;
  for (int64_t j = 0; j < keys; j += kTile) {
    __syncthreads();
    load_rows(k, pitch, kTile, op.columns(b, op.heads + kv), j, keys, d);
    load_rows(v, pitch, kTile, op.columns(b, op.heads + op.kv_heads + kv), j, keys, d);
    __syncthreads();
    float score[kRows], dweight[kRows];
    dot_rows(q + warp * kRows * d, k, pitch, d, score);
    dot_rows(g + warp * kRows * d, v, pitch, d, dweight);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t i = first + warp * kRows + r;
      const float weight = i < op.s && j + lane <= i ? expf(score[r] * op.scale - lse[r]) : 0.0f;
      score[r] = weight * (dweight[r] - delta[r]) * op.scale;
    }
    add_rows(sums, score, k, pitch, d);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t i = first + warp * kRows + r;
    if (i < op.s) store_row(op.dqkv + (b * op.s + i) * op.stride() + head * d, sums[r], 1.0f, d);
  }
}

template <class T, int Parts>
__global__ void __launch_bounds__(kThreads, 2) backward_keys(Backward<T> op) {
  const int64_t kv = blockIdx.y, b = blockIdx.z;
  const int d = op.d, pitch = d + 1, warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  auto* k = reinterpret_cast<float*>(dynamic_shared());
  float *v = k + kBlockRows * d, *q = v + kBlockRows * d, *g = q + kTile * pitch;
  const int64_t first = int64_t{blockIdx.x} * kBlockRows;
  load_rows(k, d, kBlockRows, op.columns(b, op.heads + kv), first, op.s, d);
  load_rows(v, d, kBlockRows, op.columns(b, op.heads + op.kv_heads + kv), first, op.s, d);
  float dkey[kRows][Parts] = {}, dvalue[kRows][Parts] = {};
  const int group = op.heads / op.kv_heads;
  for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
    for (int64_t i = first / kTile * kTile; i < op.s; i += kTile) {
      __syncthreads();
      load_rows(q, pitch, kTile, op.columns(b, head), i, op.s, d);
      load_rows(g, pitch, kTile, op.gradients(b, head), i, op.s, d);
      __syncthreads();
      const int64_t at = (b * op.heads + head) * op.s + i + lane;
      const bool is_query = i + lane < op.s;
      const float lse = is_query ? op.lse[at] : 0, delta = is_query ? op.delta[at] : 0;
      float score[kRows], dweight[kRows], weight[kRows];
      dot_rows(k + warp * kRows * d, q, pitch, d, score);
      dot_rows(v + warp * kRows * d, g, pitch, d, dweight);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t j = first + warp * kRows + r;
        weight[r] = is_query && j <= i + lane ? expf(score[r] * op.scale - lse) : 0.0f;
        score[r] = weight[r] * (dweight[r] - delta) * op.scale;
      }
      add_rows(dvalue, weight, g, pitch, d);
      add_rows(dkey, score, q, pitch, d);
    }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t j = first + warp * kRows + r;
    if (j >= op.s) continue;
    T* row = op.dqkv + (b * op.s + j) * op.stride();
    store_row(row + (op.heads + kv) * d, dkey[r], 1.0f, d);
    store_row(row + (op.heads + op.kv_heads + kv) * d, dvalue[r], 1.0f, d);
  }
}

/// f(constant<parts>): a lane's elements of a row, rounded up to 1, 2, 4 or 8.
template <class F>
void with_parts(int64_t d, const F& f) {
  if (d <= 32)
    f(std::integral_constant<int, 1>{});
  else if (d <= 64)
    f(std::integral_constant<int, 2>{});
  else if (d <= 128)
    f(std::integral_constant<int, 4>{});
  else
    f(std::integral_constant<int, 8>{});
}

float scale_of(int64_t d) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
}

size_t shared_bytes(int64_t d, int64_t block_rows) {
  return static_cast<size_t>(block_rows * d + 2 * kTile * (d + 1)) * sizeof(float);
}

}  // namespace

void plain_attention_forward(CudaDevice& device, const AttentionForward& op) {
  with_element_type(op.out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_parts(op.head_size, [&](auto parts) {
      launch("attention (fp32)", device, forward<T, decltype(parts)::value>,
             dim3(blocks(pieces(op.s, kBlockRows)), blocks(op.heads), blocks(op.b)), kThreads,
             shared_bytes(op.head_size, kBlockRows), op.s, static_cast<int>(op.heads),
             static_cast<int>(op.kv_heads), static_cast<int>(op.head_size), scale_of(op.head_size),
             op.qkv.as<T>(), op.out.as<T>(), op.lse);
    });
  });
}

void plain_attention_backward(CudaDevice& device, const AttentionBackward& op, const float* delta) {
  with_element_type(op.dqkv.dtype(), [&](auto type) {
    using T = decltype(type);
    const Backward<T> b{op.s,
                        static_cast<int>(op.heads),
                        static_cast<int>(op.kv_heads),
                        static_cast<int>(op.head_size),
                        scale_of(op.head_size),
                        op.qkv.as<T>(),
                        op.dout.as<T>(),
                        op.lse,
                        delta,
                        op.dqkv.as<T>()};
    const size_t shared = shared_bytes(op.head_size, 2 * kBlockRows);
    const unsigned across = blocks(pieces(op.s, kBlockRows));
    with_parts(op.head_size, [&](auto parts) {
      constexpr int n = decltype(parts)::value;
      launch("attention gradient of keys (fp32)", device, backward_keys<T, n>,
             dim3(across, blocks(op.kv_heads), blocks(op.b)), kThreads, shared, b);
      launch("attention gradient of queries (fp32)", device, backward_queries<T, n>,
             dim3(across, blocks(op.heads), blocks(op.b)), kThreads, shared, b);
    });
  });
}

void plain_attention_cached(CudaDevice& device, const AttentionCached& op) {
  with_element_type(op.out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_parts(op.head_size, [&](auto parts) {
      launch("attention on a cache", device, cached<T, decltype(parts)::value>,
             dim3(blocks(pieces(op.s, kBlockRows)), blocks(op.heads)), kThreads,
             shared_bytes(op.head_size, kBlockRows), op.s, op.first, op.capacity, static_cast<int>(op.heads),
             static_cast<int>(op.kv_heads), static_cast<int>(op.head_size), scale_of(op.head_size),
             op.qkv.as<T>(), op.keys.as<T>(), op.values.as<T>(), op.out.as<T>());
    });
  });
}

}  // namespace triax::cuda
