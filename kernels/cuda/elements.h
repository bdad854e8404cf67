#pragma once

#include <type_traits>

#include "core/dtype.h"
#include "kernels/cuda/launch.h"

namespace triax::cuda {

// Elements in memory and floats in registers. N elements are moved at once, 16 bytes per instruction where
// they are so many; addresses are aligned to what is moved at once (at most 16 bytes).

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(bf16 x) {
  return __uint_as_float(uint32_t{x.bits} << 16);
}
template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 narrow<bf16>(float x) {
  return bf16{static_cast<uint16_t>(pack_bf16(x, 0))};
}

/// The two bfloat16 of a word.
__device__ inline void unpack(uint32_t pair, float& low, float& high) {
  low = __uint_as_float(pair << 16);
  high = __uint_as_float(pair & 0xffff0000u);
}

template <int N>
__device__ inline void load(const float* from, float (&x)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = from[i];
  }
}
template <int N>
__device__ inline void load(const bf16* from, float (&x)[N]) {
  if constexpr (N % 8 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(from + i);
      unpack(v.x, x[i], x[i + 1]);
      unpack(v.y, x[i + 2], x[i + 3]);
      unpack(v.z, x[i + 4], x[i + 5]);
      unpack(v.w, x[i + 6], x[i + 7]);
    }
  } else if constexpr (N == 4) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    unpack(v.x, x[0], x[1]);
    unpack(v.y, x[2], x[3]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = widen(from[i]);
  }
}

template <int N>
__device__ inline void store(float* to, const float (&x)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4)
      *reinterpret_cast<float4*>(to + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = x[i];
  }
}
template <int N>
__device__ inline void store(bf16* to, const float (&x)[N]) {
  if constexpr (N % 8 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 8)
      *reinterpret_cast<uint4*>(to + i) =
          make_uint4(pack_bf16(x[i], x[i + 1]), pack_bf16(x[i + 2], x[i + 3]), pack_bf16(x[i + 4], x[i + 5]),
                     pack_bf16(x[i + 6], x[i + 7]));
  } else if constexpr (N == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = narrow<bf16>(x[i]);
  }
}

/// x as it will be when it has been stored as T.
template <class T>
__device__ inline float round_to(float x) {
  return widen(narrow<T>(x));
}

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int vector_of = 16 / static_cast<int>(sizeof(T));

/// Whether all of these (null among them) lie on multiples of 16 bytes.
template <class... P>
bool aligned16(const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// f(float{}) or f(bf16{}): where an element type that is known at run time becomes a type.
template <class F>
void with_element_type(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else
    f(float{});
}

/// f(constant<vector>) where `vector` says so, else f(constant<1>): the width in which elements are moved.
template <int Vector, class F>
void with_width(bool vector, const F& f) {
  if (vector)
    f(std::integral_constant<int, Vector>{});
  else
    f(std::integral_constant<int, 1>{});
}

// A long array, `Packs` packs of W elements for each thread: more than one where a thread has something to
// find out first.

constexpr int array_threads = 256;

template <int W, int Packs = 1>
unsigned array_blocks(int64_t n) {
  return blocks(pieces(n, int64_t{W} * Packs * array_threads));
}

/// f(first element, constant<W>) for each of this thread's packs; at the array's end, element by element with
/// constant<1>.
template <int W, int Packs = 1, class F>
__device__ inline void visit_array(int64_t n, const F& f) {
#pragma unroll 1
  for (int pack = 0; pack < Packs; ++pack) {
    int64_t i = ((int64_t{blockIdx.x} * Packs + pack) * blockDim.x + threadIdx.x) * W;
    if (i + W <= n) {
      f(i, std::integral_constant<int, W>{});
    } else {
      for (; i < n; ++i) f(i, std::integral_constant<int, 1>{});
    }
  }
}

// A matrix of rows: a block has a piece of one row, a thread a pack of it.

struct RowGrid {
  unsigned grid, threads;
  int pieces;  ///< of a row
};

template <int W>
RowGrid row_grid(int64_t rows, int64_t columns) {
  const int64_t packs = pieces(columns, W), cuts = pieces(packs, 256);
  return {blocks(rows * cuts), static_cast<unsigned>(pieces(pieces(packs, cuts), 32) * 32),
          static_cast<int>(cuts)};
}

/// f(row, column) for this thread's pack of W columns (of which there is a multiple of W), if it has one.
template <int W, class F>
__device__ inline void visit_row(int64_t columns, int cuts, const F& f) {
  const int64_t row = blockIdx.x / static_cast<unsigned>(cuts);
  const int64_t column = (int64_t{blockIdx.x % static_cast<unsigned>(cuts)} * blockDim.x + threadIdx.x) * W;
  if (column < columns) f(row, column);
}

}  // namespace triax::cuda
