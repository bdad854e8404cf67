#include "kernels/cuda/attention.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reductions.h"

namespace triax::cuda {

namespace {

constexpr int kWarps = 4;

template <class Op>
void check_shape(const Op& op) {
  check(op.head_size >= 1 && op.head_size <= attention_max_head,
        "attention with a head size of {}: the GPU's kernels take 1 to {}; choose more heads or a smaller "
        "hidden_size",
        op.head_size, attention_max_head);
  check(op.kv_heads >= 1 && op.heads % op.kv_heads == 0,
        "attention with {} query heads on {} key-value heads: the former must be a multiple of the latter",
        op.heads, op.kv_heads);
}

/// delta[b, a, s] = sum over d of dout * out: what the softmax's gradient subtracts. `Lanes` lanes of a warp
/// have a row of a head, in packs of W.
template <class T, int W, int Lanes>
__global__ void __launch_bounds__(32 * kWarps)
    row_products(int64_t b, int64_t s, int heads, int d, const T* out, const T* dout, float* delta) {
  const int64_t item =
      int64_t{blockIdx.x} * (kWarps * 32 / Lanes) + threadIdx.x / Lanes;  // (b * S + s) * A + a
  const bool is_row = item < b * s * heads;
  const int lane = static_cast<int>(threadIdx.x % Lanes);
  float sum = 0;
  if (is_row)
    for (int i = lane * W; i < d; i += Lanes * W) {
      float x[W], y[W];
      load(out + item * d + i, x);
      load(dout + item * d + i, y);
#pragma unroll
      for (int k = 0; k < W; ++k) sum += x[k] * y[k];
    }
#pragma unroll
  for (int distance = Lanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(full_warp, sum, distance);
  const int64_t row = item / heads, head = item % heads;
  if (is_row && lane == 0) delta[(row / s * heads + head) * s + row % s] = sum;
}

template <class T, int W, int Lanes>
void launch_row_products(CudaDevice& gpu, const AttentionBackward& op, float* delta) {
  launch("attention row products", gpu, row_products<T, W, Lanes>,
         blocks(pieces(op.b * op.s * op.heads, kWarps * 32 / Lanes)), 32 * kWarps, 0, op.b, op.s,
         static_cast<int>(op.heads), static_cast<int>(op.head_size), op.out.as<T>(), op.dout.as<T>(), delta);
}

/// The new positions of all key-value heads, into the cache.
template <class T>
__global__ void __launch_bounds__(array_threads)
    remember(int64_t s, int64_t first, int64_t capacity, int heads, int kv_heads, int d, const T* qkv,
             T* keys, T* values) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= s * kv_heads * d) return;
  const int64_t k = i % d, kv = i / d % kv_heads, t = i / d / kv_heads, position = first + t;
  const T* key = qkv + t * (heads + 2 * kv_heads) * d + (heads + kv) * d + k;
  const int64_t block = kv * (capacity / cache_block) + position / cache_block;
  keys[(block * d + k) * cache_block + position % cache_block] = key[0];
  values[(kv * capacity + position) * d + k] = key[int64_t{kv_heads} * d];
}

}  // namespace

void attention_forward(Device& device, const AttentionForward& op) {
  check_shape(op);
  if (op.b == 0 || op.s == 0) return;
  CudaDevice& gpu = cuda_device(device);
  if (cudnn_attention_forward(gpu, op)) return;
  if (tensor_attention_takes(op.head_size, op.qkv, op.out, op.out, op.out))
    tensor_attention_forward(gpu, op);
  else
    plain_attention_forward(gpu, op);
}

void attention_backward(Device& device, const AttentionBackward& op) {
  check_shape(op);
  if (op.b == 0 || op.s == 0) return;
  CudaDevice& gpu = cuda_device(device);
  if (cudnn_attention_backward(gpu, op)) return;
  const int64_t rows = op.b * op.s * op.heads;
  const size_t bytes = static_cast<size_t>(rows) * attention_bytes;
  check(bytes <= cuda_workspace_bytes,
        "the backward of attention over {} tokens and {} heads needs {} bytes of the GPU's workspace of {}; "
        "use a "
        "smaller micro_batch_size or more tensor ranks",
        op.b * op.s, op.heads, bytes, cuda_workspace_bytes);
  auto* delta = static_cast<float*>(gpu.workspace());
  with_element_type(op.dout.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool vector = op.head_size % vector_of<T> == 0 && aligned16(op.out.as<T>(), op.dout.as<T>());
    with_width<vector_of<T>>(vector, [&](auto width) {
      constexpr int w = decltype(width)::value;
      if (w == 1 || op.head_size > 16 * w)
        launch_row_products<T, w, 32>(gpu, op, delta);
      else if (op.head_size > 8 * w)
        launch_row_products<T, w, 16>(gpu, op, delta);
      else
        launch_row_products<T, w, 8>(gpu, op, delta);
    });
  });
  if (tensor_attention_takes(op.head_size, op.qkv, op.out, op.dout, op.dqkv))
    tensor_attention_backward(gpu, op, delta);
  else
    plain_attention_backward(gpu, op, delta);
}

void attention_cached(Device& device, const AttentionCached& op) {
  check_shape(op);
  check(op.capacity % cache_block == 0 && op.first >= 0 && op.first + op.s <= op.capacity,
        "positions {} to {} of a key-value cache of {}", op.first, op.first + op.s, op.capacity);
  if (op.s == 0) return;
  CudaDevice& gpu = cuda_device(device);
  with_element_type(op.out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch("attention cache", gpu, remember<T>, array_blocks<1>(op.s * op.kv_heads * op.head_size),
           array_threads, 0, op.s, op.first, op.capacity, static_cast<int>(op.heads),
           static_cast<int>(op.kv_heads), static_cast<int>(op.head_size), op.qkv.as<T>(), op.keys.as<T>(),
           op.values.as<T>());
  });
  plain_attention_cached(gpu, op);
}

}  // namespace triax::cuda
