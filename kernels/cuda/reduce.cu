#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/reductions.h"

namespace triax::cuda {

namespace {

constexpr int kPerLane = 32, kChunk = 32 * kPerLane;  // elements that a warp sums at once
constexpr int64_t kMaxBlocks = 1024;                  // the sum is exact: how many there are does not show
constexpr uint32_t kInfinity = 0x7f800000;

/// 1.5 * 2^e: adding and subtracting it rounds to a multiple of 2^(e - 52).
__device__ inline double rounder(int e) {
  return __longlong_as_double((static_cast<long long>(1023 + e) << 52) | (1ll << 51));
}

/// The sum of a chunk's squares as doubles that are exact in any order: what the squares hold in windows of
/// bits, one below the other, beneath 2^top (pre-rounding: see cpu/reduce.cpp). A value that has bits below
/// the last window leaves a rest.
struct Windows {
  static constexpr int count = 3, bits = 41;
  double sum[count] = {};
  double rest = 0;

  __device__ void add(float x, int top) {
    double square = static_cast<double>(x) * static_cast<double>(x);
#pragma unroll
    for (int w = 0; w < count; ++w) {
      const double shift = rounder(top - (w + 1) * bits + 52);
      const double upper = (square + shift) - shift;
      square -= upper;
      sum[w] += upper;
    }
    rest += fabs(square);
  }
};

template <int W>
__device__ inline void load_chunk(const float* x, int64_t n, int64_t first, float (&v)[kPerLane]) {
  const int64_t lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kPerLane; j += W) {
    const int64_t i = first + j * 32 + lane * W;
    float part[W];
    if (i + W <= n) {
      load(x + i, part);
    } else {
#pragma unroll
      for (int k = 0; k < W; ++k) part[k] = i + k < n ? x[i + k] : 0;
    }
#pragma unroll
    for (int k = 0; k < W; ++k) v[j + k] = part[k];
  }
}

/// Values of very different size, or not finite, one by one. Rare, and apart so that it costs the others no
/// registers.
__device__ inline void add_one_by_one(const float* x, int64_t n, int64_t first, BlockExactSum& block,
                                      bool only_non_finite) {
  const int64_t end = first + kChunk < n ? first + kChunk : n;
#pragma unroll 1
  for (int64_t i = first + threadIdx.x % 32; i < end; i += 32) {
    const double square = static_cast<double>(x[i]) * static_cast<double>(x[i]);
    if (!only_non_finite || !isfinite(square)) block.add(square);
  }
}

/// Whether the chunk has been added, or has nothing to add.
__device__ inline bool add_chunk(const float (&v)[kPerLane], BlockExactSum& block, bool only_non_finite) {
  uint32_t largest = 0;
#pragma unroll
  for (const float x : v) {
    const uint32_t bits = __float_as_uint(x) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  largest = __reduce_max_sync(full_warp, largest);
  if (largest == 0 || (only_non_finite && largest < kInfinity)) return true;
  if (largest >= kInfinity) return false;
  const int exponent = static_cast<int>(largest >> 23);
  const int top = 2 * ((exponent == 0 ? 1 : exponent) - 126);  // each square is below 2^top
  Windows windows;
#pragma unroll
  for (const float x : v) windows.add(x, top);
  if (__any_sync(full_warp, windows.rest != 0)) return false;
#pragma unroll
  for (int w = 0; w < Windows::count; ++w) {
    const double total = warp_sum(windows.sum[w]);
    if (threadIdx.x % 32 == 0) block.add(total);
  }
  return true;
}

template <int W>
__global__ void __launch_bounds__(array_threads)
    sum_squares(int64_t n, const float* x, ExactSum* sum, bool only_non_finite) {
  BlockExactSum block;
  const int64_t warps = int64_t{gridDim.x} * (array_threads / 32);
  const int64_t warp = int64_t{blockIdx.x} * (array_threads / 32) + threadIdx.x / 32;
  for (int64_t first = warp * kChunk; first < n; first += warps * kChunk) {
    float v[kPerLane];
    load_chunk<W>(x, n, first, v);
    if (!add_chunk(v, block, only_non_finite)) add_one_by_one(x, n, first, block, only_non_finite);
  }
  block.add_to(sum);
}

__global__ void propagate_carries(int64_t n, ExactSum* sums) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) sums[i].normalise();
}

template <int W>
__global__ void __launch_bounds__(array_threads) add_array(int64_t n, const float* x, float* y) {
  visit_array<W>(n, [&](int64_t i, auto width) {
    float a[decltype(width)::value], b[decltype(width)::value];
    load(x + i, a);
    load(y + i, b);
#pragma unroll
    for (int k = 0; k < decltype(width)::value; ++k) b[k] += a[k];
    store(y + i, b);
  });
}

template <int W>
__global__ void __launch_bounds__(array_threads) cast_array(int64_t n, const float* x, bf16* y) {
  visit_array<W>(n, [&](int64_t i, auto width) {
    float a[decltype(width)::value];
    load(x + i, a);
    store(y + i, a);
  });
}

/// *index becomes the least index of a value that is not finite; it begins as the largest number without a
/// sign, which is -1.
template <int W>
__global__ void __launch_bounds__(array_threads)
    least_index(int64_t n, const float* x, unsigned long long* index) {
  visit_array<W>(n, [&](int64_t i, auto width) {
    constexpr int count = decltype(width)::value;
    float a[count];
    load(x + i, a);
    int at = count;
#pragma unroll
    for (int k = count - 1; k >= 0; --k)
      if ((__float_as_uint(a[k]) & 0x7fffffffu) >= kInfinity) at = k;
    if (at < count) atomicMin(index, static_cast<unsigned long long>(i + at));
  });
}

}  // namespace

void squared_norm(Device& device, const SquaredNorm& op) {
  if (op.n == 0) return;
  const int64_t grid = std::min(pieces(op.n, int64_t{kChunk} * (array_threads / 32)), kMaxBlocks);
  with_width<4>(aligned16(op.x), [&](auto width) {
    launch("squared norm", cuda_device(device), sum_squares<decltype(width)::value>, blocks(grid),
           array_threads, 0, op.n, op.x, op.sum, op.only_non_finite);
  });
}

void normalise_sums(Device& device, const NormaliseSums& op) {
  if (op.n == 0) return;
  launch("carries of sums", cuda_device(device), propagate_carries, blocks(pieces(op.n, 32)), 32, 0, op.n,
         op.sums);
}

void add(Device& device, const Add& op) {
  if (op.n == 0) return;
  with_width<4>(aligned16(op.x, op.y), [&](auto width) {
    constexpr int w = decltype(width)::value;
    launch("add", cuda_device(device), add_array<w>, array_blocks<w>(op.n), array_threads, 0, op.n, op.x,
           op.y);
  });
}

void cast(Device& device, const Cast& op) {
  if (op.n == 0) return;
  with_width<8>(aligned16(op.x, op.y), [&](auto width) {
    constexpr int w = decltype(width)::value;
    launch("cast", cuda_device(device), cast_array<w>, array_blocks<w>(op.n), array_threads, 0, op.n, op.x,
           op.y);
  });
}

void find_non_finite(Device& device, const FindNonFinite& op) {
  CudaDevice& gpu = cuda_device(device);
  const cudaError_t status = cudaMemsetAsync(op.index, 0xff, sizeof(int64_t), gpu.stream());
  check(status == cudaSuccess, "CUDA could not clear an index: {}", cudaGetErrorString(status));
  if (op.n == 0) return;
  with_width<4>(aligned16(op.x), [&](auto width) {
    constexpr int w = decltype(width)::value;
    launch("search for non-finite values", gpu, least_index<w>, array_blocks<w>(op.n), array_threads, 0, op.n,
           op.x, reinterpret_cast<unsigned long long*>(op.index));
  });
}

}  // namespace triax::cuda
