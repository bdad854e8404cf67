#pragma once

#include "kernels/cuda/device_code.h"

namespace triax::cuda {

// Sums and maxima in an order of the shape alone; all threads get the result.

inline constexpr unsigned full_warp = 0xffffffffu;

template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(full_warp, x, distance);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(full_warp, x, distance));
  return x;
}

/// Over a block of whole warps, all of whose threads call it. A block of one warp meets no barrier.
__device__ inline float block_sum(float x) {
  __shared__ float parts[32];
  x = warp_sum(x);
  const unsigned warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (warps == 1) return x;
  __syncthreads();  // an earlier sum's parts have been read
  if (lane == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_sum(lane < warps ? parts[lane] : 0.0f);
}

__device__ inline float block_max(float x) {
  __shared__ float parts[32];
  x = warp_max(x);
  const unsigned warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (warps == 1) return x;
  __syncthreads();
  if (lane == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_max(lane < warps ? parts[lane] : x);
}

}  // namespace triax::cuda
