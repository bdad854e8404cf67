#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/reductions.h"

namespace triax::cuda {

namespace {

constexpr int kThreads = 512;  // of a row

/// f(column, constant<W>) for packs of a row of n columns, the rest with constant<1>; a block has the row.
template <int W, class F>
__device__ inline void visit_columns(int64_t n, const F& f) {
  const int64_t whole = n / W * W;
#pragma unroll 4
  for (int64_t c = int64_t{threadIdx.x} * W; c < whole; c += int64_t{kThreads} * W)
    f(c, std::integral_constant<int, W>{});
  for (int64_t c = whole + threadIdx.x; c < n; c += kThreads) f(c, std::integral_constant<int, 1>{});
}

/// Column of a row's target, or -1 when it is not on this rank.
__device__ inline int64_t target_column(int32_t target, int64_t first_row, int64_t valid) {
  const int64_t column = target - first_row;
  return target >= 0 && column >= 0 && column < valid ? column : -1;
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    row_maximum(int64_t valid, int64_t ld, const T* logits, float* maximum) {
  const T* row = logits + int64_t{blockIdx.x} * ld;
  float m = -INFINITY;
  visit_columns<W>(valid, [&](int64_t c, auto width) {
    float x[decltype(width)::value];
    load(row + c, x);
#pragma unroll
    for (const float v : x) m = fmaxf(m, v);
  });
  m = block_max(m);
  if (threadIdx.x == 0) maximum[blockIdx.x] = m;
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    row_sum(int64_t valid, int64_t ld, int64_t first_row, const T* logits, const float* maximum,
            const int32_t* targets, float* sum_exp, float* target_logit) {
  const T* row = logits + int64_t{blockIdx.x} * ld;
  const float m = maximum[blockIdx.x];
  float sum = 0;
  visit_columns<W>(valid, [&](int64_t c, auto width) {
    float x[decltype(width)::value];
    load(row + c, x);
#pragma unroll
    for (const float v : x) sum += expf(v - m);
  });
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  sum_exp[blockIdx.x] = sum;
  const int64_t target = target_column(targets[blockIdx.x], first_row, valid);
  target_logit[blockIdx.x] = target >= 0 ? widen(row[target]) - m : 0;
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    row_gradient(int64_t valid, int64_t ld, int64_t first_row, const T* logits, const float* maximum,
                 const float* sum_exp, const int32_t* targets, float scale, T* dlogits) {
  const int64_t t = blockIdx.x;
  const T* row = logits + t * ld;
  T* out = dlogits + t * ld;
  const bool counts = targets[t] >= 0;
  const float m = maximum[t], factor = counts ? scale / sum_exp[t] : 0;
  const int64_t target = target_column(targets[t], first_row, valid);
  visit_columns<W>(valid, [&](int64_t c, auto width) {
    constexpr int n = decltype(width)::value;
    float x[n];
    load(row + c, x);
#pragma unroll
    for (int k = 0; k < n; ++k)
      x[k] = counts ? expf(x[k] - m) * factor - (c + k == target ? scale : 0.0f) : 0.0f;
    store(out + c, x);
  });
  for (int64_t c = valid + threadIdx.x; c < ld; c += kThreads) out[c] = T{};
}

__global__ void __launch_bounds__(array_threads)
    loss_sum(int64_t t, const float* sum_exp, const float* target_logit, const int32_t* targets,
             ExactSum* sum) {
  BlockExactSum block;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < t && targets[i] >= 0)
    block.add(log(static_cast<double>(sum_exp[i])) - static_cast<double>(target_logit[i]));
  block.add_to(sum);
}

/// f(type, width) for rows of `ld` elements of these buffers.
template <class F>
void with_rows(DType dtype, int64_t ld, const ConstElements& a, const ConstElements& b, const F& f) {
  with_element_type(dtype, [&](auto type) {
    using T = decltype(type);
    const bool vector = ld % vector_of<T> == 0 && aligned16(a.as<T>(), b.as<T>());
    with_width<vector_of<T>>(vector, [&](auto width) { f(type, width); });
  });
}

}  // namespace

void cross_entropy_max(Device& device, const CrossEntropyMax& op) {
  if (op.t == 0) return;
  with_rows(op.logits.dtype(), op.ld, op.logits, op.logits, [&](auto type, auto width) {
    using T = decltype(type);
    launch("cross-entropy maximum", cuda_device(device), row_maximum<T, decltype(width)::value>, blocks(op.t),
           kThreads, 0, op.valid, op.ld, op.logits.as<T>(), op.maximum);
  });
}

void cross_entropy_sum(Device& device, const CrossEntropySum& op) {
  if (op.t == 0) return;
  with_rows(op.logits.dtype(), op.ld, op.logits, op.logits, [&](auto type, auto width) {
    using T = decltype(type);
    launch("cross-entropy sum", cuda_device(device), row_sum<T, decltype(width)::value>, blocks(op.t),
           kThreads, 0, op.valid, op.ld, op.first_row, op.logits.as<T>(), op.maximum, op.targets, op.sum_exp,
           op.target_logit);
  });
}

void cross_entropy_backward(Device& device, const CrossEntropyBackward& op) {
  if (op.t == 0) return;
  with_rows(op.dlogits.dtype(), op.ld, op.logits, op.dlogits, [&](auto type, auto width) {
    using T = decltype(type);
    launch("cross-entropy gradient", cuda_device(device), row_gradient<T, decltype(width)::value>,
           blocks(op.t), kThreads, 0, op.valid, op.ld, op.first_row, op.logits.as<T>(), op.maximum,
           op.sum_exp, op.targets, op.scale, op.dlogits.as<T>());
  });
}

void cross_entropy_loss(Device& device, const CrossEntropyLoss& op) {
  if (op.t == 0) return;
  launch("loss sum", cuda_device(device), loss_sum, array_blocks<1>(op.t), array_threads, 0, op.t, op.sum_exp,
         op.target_logit, op.targets, op.sum);
}

}  // namespace triax::cuda
