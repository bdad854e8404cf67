#include <cmath>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/elements.h"

// FlashAttention-2 (Dao 2023) in bf16 on tensor cores, for head sizes 64 and 128. A block of four warps has
// 64 rows of one side, 16 per warp, and streams tiles of the other side through two stages of shared memory.
// The backward computes the scores twice, once by keys and once by queries, so that each gradient is summed
// by one warp in one order. Softmax in fp32, in powers of two.

namespace triax::cuda {

namespace {

constexpr int kBlock = 64;  // rows of a block
constexpr float kLog2e = 1.4426950408889634f;

struct Shape {
  int64_t s;
  int heads, kv_heads;
  float scale;

  __device__ int kv_of(int head) const { return head / (heads / kv_heads); }
  /// Rows of fused projections, and of outputs.
  __device__ int64_t stride(int d) const { return int64_t{heads + 2 * kv_heads} * d; }
  __device__ int64_t out_stride(int d) const { return int64_t{heads} * d; }
};

/// Maximum, or sum, over the four lanes that hold one row of a fragment.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <int D>
__global__ void __launch_bounds__(tile_threads) forward(Shape shape, const bf16* qkv, bf16* out, float* lse) {
  constexpr int N = kBlock;  // keys of a tile
  auto* q = reinterpret_cast<bf16*>(dynamic_shared());
  bf16 *k = q + kBlock * D, *v = k + 2 * N * D;
  const int head = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t b = blockIdx.z, s = shape.s, stride = shape.stride(D);
  const int64_t first =
      int64_t{gridDim.x - 1 - blockIdx.x} * kBlock;  // late queries see more keys: they go first
  const bf16* queries = qkv + b * s * stride + int64_t{head} * D;
  const bf16* keys = qkv + b * s * stride + int64_t{shape.heads + shape.kv_of(head)} * D;
  const bf16* values = keys + int64_t{shape.kv_heads} * D;
  const int row = static_cast<int>(threadIdx.x / 32) * 16;
  const int64_t query = first + row + lane / 4;  // and query + 8

  load_tile<kBlock, D>(q, queries, stride, first, s);
  load_tile<N, D>(k, keys, stride, 0, s);
  load_tile<N, D>(v, values, stride, 0, s);
  commit_copies();
  float o[D / 8][4] = {}, maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const float scale = shape.scale * kLog2e;
  const int tiles = static_cast<int>(first / N) + 1;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2 * N * D, next = (tile + 1) % 2 * N * D;
    if (tile + 1 < tiles) {
      load_tile<N, D>(k + next, keys, stride, int64_t{tile + 1} * N, s);
      load_tile<N, D>(v + next, values, stride, int64_t{tile + 1} * N, s);
    }
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    float c[N / 8][4] = {};
    multiply_rows<D, N>(c, q, row, k + stage);
    if (tile == tiles - 1) {  // the diagonal
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t key = int64_t{tile} * N + n * 8 + lane % 4 * 2 + (e & 1);
          if (key > query + (e & 2) * 4) c[n][e] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = maximum[half];
#pragma unroll
      for (int n = 0; n < N / 8; ++n) m = fmaxf(m, fmaxf(c[n][2 * half], c[n][2 * half + 1]));
      m = row_max(m);  // finite: each row meets key 0 first
      const float shrink = exp2_fast((maximum[half] - m) * scale), shift = m * scale;
      maximum[half] = m;
      float total = 0;
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) total += c[n][e] = exp2_fast(c[n][e] * scale - shift);
      sum[half] = sum[half] * shrink + total;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) o[n][2 * half] *= shrink, o[n][2 * half + 1] *= shrink;
    }
    uint32_t p[N / 16][4];
    to_operand<N>(c, p);
    add_weighted_rows<D, N>(o, p, v + stage);
    __syncthreads();  // before the stage is filled again
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = row_sum(sum[half]);
    inverse[half] = 1.0f / total;
    const int64_t i = query + 8 * half;
    if (lane % 4 == 0 && i < s)
      lse[(b * shape.heads + head) * s + i] = maximum[half] * shape.scale + logf(total);
  }
  store_rows<D>(o, inverse[0], inverse[1], q, row, out + b * s * shape.out_stride(D) + int64_t{head} * D,
                shape.out_stride(D), first + row, s);
}

struct Gradients {
  const bf16 *qkv, *dout;
  const float *lse, *delta;
  bf16* dqkv;
};

/// Queries' gradients: dQ = scale dS K, with dS = P (dO V^T - delta).
template <int D, int N>
__global__ void __launch_bounds__(tile_threads) backward_queries(Shape shape, Gradients op) {
  auto* q = reinterpret_cast<bf16*>(dynamic_shared());
  bf16 *g = q + kBlock * D, *k = g + kBlock * D, *v = k + 2 * N * D;
  const int head = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t b = blockIdx.z, s = shape.s, stride = shape.stride(D);
  const int64_t first = int64_t{gridDim.x - 1 - blockIdx.x} * kBlock;
  const bf16* keys = op.qkv + b * s * stride + int64_t{shape.heads + shape.kv_of(head)} * D;
  const bf16* values = keys + int64_t{shape.kv_heads} * D;
  const int row = static_cast<int>(threadIdx.x / 32) * 16;
  const int64_t query = first + row + lane / 4;

  load_tile<kBlock, D>(q, op.qkv + b * s * stride + int64_t{head} * D, stride, first, s);
  load_tile<kBlock, D>(g, op.dout + b * s * shape.out_stride(D) + int64_t{head} * D, shape.out_stride(D),
                       first, s);
  load_tile<N, D>(k, keys, stride, 0, s);
  load_tile<N, D>(v, values, stride, 0, s);
  commit_copies();
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t i = query + 8 * half, at = (b * shape.heads + head) * s + i;
    lse[half] = i < s ? op.lse[at] * kLog2e : INFINITY;  // no weight at all
    delta[half] = i < s ? op.delta[at] : 0;
  }
  float dq[D / 8][4] = {};
  const float scale = shape.scale * kLog2e;
  const int tiles = static_cast<int>((first + kBlock) / N);
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2 * N * D, next = (tile + 1) % 2 * N * D;
    if (tile + 1 < tiles) {
      load_tile<N, D>(k + next, keys, stride, int64_t{tile + 1} * N, s);
      load_tile<N, D>(v + next, values, stride, int64_t{tile + 1} * N, s);
    }
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    float c[N / 8][4] = {}, dp[N / 8][4] = {};
    multiply_rows<D, N>(c, q, row, k + stage);
    multiply_rows<D, N>(dp, g, row, v + stage);
    const bool diagonal = int64_t{tile + 1} * N > first;
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const int64_t key = int64_t{tile} * N + n * 8 + lane % 4 * 2 + (e & 1);
        const bool hidden = diagonal && key > query + 8 * half;
        const float weight = hidden ? 0.0f : exp2_fast(c[n][e] * scale - lse[half]);
        c[n][e] = weight * (dp[n][e] - delta[half]);
      }
    uint32_t ds[N / 16][4];
    to_operand<N>(c, ds);
    add_weighted_rows<D, N>(dq, ds, k + stage);
    __syncthreads();
  }
  store_rows<D>(dq, shape.scale, shape.scale, q, row, op.dqkv + b * s * stride + int64_t{head} * D, stride,
                first + row, s);
}

/// Keys' and values' gradients, over all query heads of theirs: dV = P^T dO and dK = scale dS^T Q, with the
/// transposed scores computed as K Q^T.
template <int D, int N>
__global__ void __launch_bounds__(tile_threads) backward_keys(Shape shape, Gradients op) {
  auto* k = reinterpret_cast<bf16*>(dynamic_shared());
  bf16 *v = k + kBlock * D, *q = v + kBlock * D, *g = q + 2 * N * D;
  auto* lse = reinterpret_cast<float*>(g + 2 * N * D);
  float* delta = lse + 2 * N;
  const int kv = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int64_t b = blockIdx.z, s = shape.s, stride = shape.stride(D), out_stride = shape.out_stride(D);
  const int64_t first = int64_t{blockIdx.x} * kBlock;
  const int row = thread / 32 * 16;
  const int64_t key = first + row + lane / 4;
  const int64_t keys = b * s * stride + int64_t{shape.heads + kv} * D,
                values = keys + int64_t{shape.kv_heads} * D;

  load_tile<kBlock, D>(k, op.qkv + keys, stride, first, s);
  load_tile<kBlock, D>(v, op.qkv + values, stride, first, s);
  const int group = shape.heads / shape.kv_heads;
  const int per_head = static_cast<int>((s - first + N - 1) / N);  // tiles of queries from the diagonal on
  const auto load_queries = [&](int item, int to) {
    const int head = kv * group + item / per_head;
    const int64_t query = first + int64_t{item % per_head} * N;
    load_tile<N, D>(q + to * N * D, op.qkv + b * s * stride + int64_t{head} * D, stride, query, s);
    load_tile<N, D>(g + to * N * D, op.dout + b * s * out_stride + int64_t{head} * D, out_stride, query, s);
    if (thread < N) {
      const int64_t i = query + thread, at = (b * shape.heads + head) * s + i;
      lse[to * N + thread] = i < s ? op.lse[at] * kLog2e : INFINITY;
      delta[to * N + thread] = i < s ? op.delta[at] : 0;
    }
  };
  load_queries(0, 0);
  commit_copies();
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  const float scale = shape.scale * kLog2e;
  const int items = group * per_head;
  for (int item = 0; item < items; ++item) {
    const int stage = item % 2;
    if (item + 1 < items) load_queries(item + 1, 1 - stage);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    const int64_t from = first + int64_t{item % per_head} * N;
    float c[N / 8][4] = {}, dp[N / 8][4] = {};
    multiply_rows<D, N>(c, k, row, q + stage * N * D);
    multiply_rows<D, N>(dp, v, row, g + stage * N * D);
    const bool diagonal = from < first + kBlock;
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = n * 8 + lane % 4 * 2 + (e & 1);
        const bool hidden = diagonal && key + (e & 2) * 4 > from + column;
        const float weight = hidden ? 0.0f : exp2_fast(c[n][e] * scale - lse[stage * N + column]);
        c[n][e] = weight;
        dp[n][e] = weight * (dp[n][e] - delta[stage * N + column]);
      }
    uint32_t operand[N / 16][4];
    to_operand<N>(c, operand);
    add_weighted_rows<D, N>(dv, operand, g + stage * N * D);
    to_operand<N>(dp, operand);
    add_weighted_rows<D, N>(dk, operand, q + stage * N * D);
    __syncthreads();
  }
  store_rows<D>(dk, shape.scale, shape.scale, k, row, op.dqkv + keys, stride, first + row, s);
  store_rows<D>(dv, 1.0f, 1.0f, v, row, op.dqkv + values, stride, first + row, s);
}

template <class Op>
Shape shape_of(const Op& op) {
  return {op.s, static_cast<int>(op.heads), static_cast<int>(op.kv_heads),
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(op.head_size)))};
}

template <int D>
void run_forward(CudaDevice& device, const AttentionForward& op) {
  launch("attention", device, forward<D>, dim3(blocks(pieces(op.s, kBlock)), blocks(op.heads), blocks(op.b)),
         tile_threads, size_t{5} * kBlock * D * sizeof(bf16), shape_of(op), op.qkv.as<bf16>(),
         op.out.as<bf16>(), op.lse);
}

template <int D>
void run_backward(CudaDevice& device, const AttentionBackward& op, const float* delta) {
  constexpr int N = D == 64 ? 64 : 32;  // as many rows of a tile as registers allow
  constexpr size_t tiles = (size_t{2} * kBlock + 4 * N) * D * sizeof(bf16);
  const Gradients g{op.qkv.as<bf16>(), op.dout.as<bf16>(), op.lse, delta, op.dqkv.as<bf16>()};
  const unsigned across = blocks(pieces(op.s, kBlock));
  launch("attention gradient of keys", device, backward_keys<D, N>,
         dim3(across, blocks(op.kv_heads), blocks(op.b)), tile_threads, tiles + 4 * N * sizeof(float),
         shape_of(op), g);
  launch("attention gradient of queries", device, backward_queries<D, N>,
         dim3(across, blocks(op.heads), blocks(op.b)), tile_threads, tiles, shape_of(op), g);
}

}  // namespace

bool tensor_attention_takes(int64_t head_size, const ConstElements& a, const ConstElements& b,
                            const ConstElements& c, const ConstElements& d) {
  return a.dtype() == DType::bf16 && (head_size == 64 || head_size == 128) &&
         aligned16(a.as<bf16>(), b.as<bf16>(), c.as<bf16>(), d.as<bf16>());
}

void tensor_attention_forward(CudaDevice& device, const AttentionForward& op) {
  op.head_size == 64 ? run_forward<64>(device, op) : run_forward<128>(device, op);
}

void tensor_attention_backward(CudaDevice& device, const AttentionBackward& op, const float* delta) {
  op.head_size == 64 ? run_backward<64>(device, op, delta) : run_backward<128>(device, op, delta);
}

}  // namespace triax::cuda
