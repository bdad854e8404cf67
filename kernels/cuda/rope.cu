#include "kernels/rope_frequency.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"

namespace triax::cuda {

namespace {

constexpr int kThreads = 128;

/// A block has a position: its angles are computed once, in double, for all heads of all sequences.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    rotate(int64_t batch, int64_t s, int heads, int half, int64_t row_stride, int64_t first,
           RopeFrequencies of, float sign, T* x) {
  __shared__ float cosine[rope_max_half], sine[rope_max_half];
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const double angle = static_cast<double>(first + blockIdx.x) * of.frequency[i];
    cosine[i] = static_cast<float>(cos(angle));
    sine[i] = sign * static_cast<float>(sin(angle));
  }
  __syncthreads();
  const int packs = half / W;
  const int64_t work = batch * heads * packs;
  for (int64_t item = threadIdx.x; item < work; item += kThreads) {
    const int i = static_cast<int>(item % packs) * W;
    const int64_t head = item / packs % heads, b = item / packs / heads;
    T* low = x + (b * s + blockIdx.x) * row_stride + head * 2 * half + i;
    float u[W], v[W];
    load(low, u);
    load(low + half, v);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float c = cosine[i + k], n = sine[i + k], a = u[k];
      u[k] = a * c - v[k] * n;
      v[k] = v[k] * c + a * n;
    }
    store(low, u);
    store(low + half, v);
  }
}

}  // namespace

void rope(Device& device, const Rope& op) {
  check(op.head_size >= 2 && op.head_size % 2 == 0 && op.head_size <= 2 * rope_max_half,
        "rotary embedding with a head size of {}: it must be even, 2 to {}", op.head_size, 2 * rope_max_half);
  if (op.b == 0 || op.s == 0) return;
  CudaDevice& gpu = cuda_device(device);
  const int64_t half = op.head_size / 2;
  const RopeFrequencies& frequencies = state_of(gpu).rope_frequencies(op);
  with_element_type(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* x = op.x.as<T>();
    const bool vector = half % vector_of<T> == 0 && op.row_stride % vector_of<T> == 0 && aligned16(x);
    with_width<vector_of<T>>(vector, [&](auto width) {
      launch("rotary embedding", gpu, rotate<T, decltype(width)::value>, blocks(op.s), kThreads, 0, op.b,
             op.s, static_cast<int>(op.heads), static_cast<int>(half), op.row_stride, op.first, frequencies,
             op.inverse ? -1.0f : 1.0f, x);
    });
  });
}

}  // namespace triax::cuda
