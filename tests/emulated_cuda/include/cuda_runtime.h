#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"

// The language of CUDA's kernels for a compiler of C++: words that only nvcc knows, the built-in variables,
// vector types, barriers, exchanges within a warp and atomics. A block's threads are fibers of one thread of
// the host (../block.h).

using std::isfinite;
using std::isinf;
using std::isnan;

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
// One block runs at a time on a thread of the host, so that what its threads share is that thread's.
#define __shared__ static thread_local

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}

namespace emulated_cuda {

struct Thread {
  uint3 index;
  unsigned linear;
};
struct Block {
  uint3 index;
  dim3 grid, size;
  unsigned char* shared;
  size_t shared_bytes;
  void* grid_object;
};
// Not in the static block of thread-locals: the kernels' shared memory, of the same library, has no room
// there.
extern thread_local Thread* t_thread;
extern thread_local Block t_block;

/// What one lane puts down for the others of its warp.
struct alignas(16) Slot {
  unsigned char bytes[64];
  template <class T>
  T as() const {
    static_assert(sizeof(T) <= sizeof bytes);
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  template <class T>
  void set(const T& value) {
    static_assert(sizeof(T) <= sizeof bytes);
    std::memcpy(bytes, &value, sizeof value);
  }
};

void sync_threads(int line);
/// Puts `bytes` of `data` into this lane's slot and waits for all lanes of `mask`; the last of them to come
/// runs `combine` on the 32 slots. They stay until the lane's next exchange.
Slot* exchange(unsigned mask, const void* data, size_t bytes, int line, void (*combine)(Slot*) = nullptr);
template <class T>
Slot* exchange(unsigned mask, const T& value, int line, void (*combine)(Slot*) = nullptr) {
  return exchange(mask, &value, sizeof value, line, combine);
}
/// Ends the program with a message that names kernel, block, thread and `what`.
[[noreturn]] void fail_thread(const char* what);

inline unsigned lane() {
  return t_thread->linear % 32;
}

/// Null, or why a launch of `kernel` would be refused.
cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes);
/// See ../streams.h.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> call);
/// See ../errors.h.
void ran(const char* name);
void run_grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(void*),
              void* arguments);

}  // namespace emulated_cuda

#define threadIdx (::emulated_cuda::t_thread->index)
#define blockIdx (::emulated_cuda::t_block.index)
#define blockDim (::emulated_cuda::t_block.size)
#define gridDim (::emulated_cuda::t_block.grid)
constexpr int warpSize = 32;

inline void __syncthreads(int line = __builtin_LINE()) {
  emulated_cuda::sync_threads(line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  emulated_cuda::exchange(mask, 0, line);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
  const int lane = static_cast<int>(emulated_cuda::lane()), from = lane ^ lane_mask;
  const auto* slots = emulated_cuda::exchange(mask, value, line);
  // Segments of `width` lanes: beyond them the lane gets its own value.
  return from / width > lane / width ? value : slots[from].template as<T>();
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, int line = __builtin_LINE()) {
  const int lane = static_cast<int>(emulated_cuda::lane());
  const auto* slots = emulated_cuda::exchange(mask, value, line);
  return slots[lane / width * width + (from & (width - 1))].template as<T>();
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  const int lane = static_cast<int>(emulated_cuda::lane()), from = lane + static_cast<int>(delta);
  const auto* slots = emulated_cuda::exchange(mask, value, line);
  return from / width > lane / width ? value : slots[from].template as<T>();
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  const int lane = static_cast<int>(emulated_cuda::lane()), from = lane - static_cast<int>(delta);
  const auto* slots = emulated_cuda::exchange(mask, value, line);
  return from < lane / width * width ? value : slots[from].template as<T>();
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  const auto* slots = emulated_cuda::exchange(mask, predicate, line);
  unsigned bits = 0;
  for (unsigned l = 0; l < 32; ++l)
    if ((mask >> l & 1u) && slots[l].as<int>()) bits |= 1u << l;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) == mask;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  const auto* slots = emulated_cuda::exchange(mask, value, line);
  unsigned largest = 0;
  for (unsigned l = 0; l < 32; ++l)
    if (mask >> l & 1u) largest = std::max(largest, slots[l].as<unsigned>());
  return largest;
}
inline unsigned __activemask() {
  return 0xffffffffu;
}

// Ranks that are threads of one host may share memory, as they may on a GPU.
template <class T>
T atomicAdd(T* to, T value) {
  static_assert(std::is_integral_v<T>, "sums of floats in any order have no bits to rely on");
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMax(T* to, T value) {
  T old = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(to, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicMin(T* to, T value) {
  T old = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (value < old &&
         !__atomic_compare_exchange_n(to, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicExch(T* to, T value) {
  return __atomic_exchange_n(to, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicOr(T* to, T value) {
  return __atomic_fetch_or(to, value, __ATOMIC_RELAXED);
}

inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
inline float rsqrtf(float x) {
  return 1 / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
