#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace triax::cuda {

// What a kernel says in words that only nvcc has, and how it is launched. Everything else in this folder is
// C++ and the runtime's calls, so that a machine without a GPU can run the same files (tests/emulated_cuda
// has a header of this name that takes this one's place).

/// Enqueues kernel(args...) on `stream`. cudaGetLastError() tells whether the runtime took it.
template <class... P, class... A>
void enqueue(const char*, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
             cudaStream_t stream, A&&... args) {
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<P>(args)...);
}

/// The block's dynamic shared memory, as many bytes as the launch asked for.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char triax_shared[];
  return triax_shared;
}

/// Two floats as bfloat16, rounded to nearest even; `low` in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// 2^x, within 2 units in the last place; results below the normal numbers are 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// C += A B of a warp: A [16, 16] and B [16, 8] bfloat16, C [16, 8] float (PTX ISA, mma.sync.m16n8k16). With
/// g = lane / 4 and i = lane % 4, the lane holds
///   a[0], a[1]  A[g][2i..], A[g + 8][2i..]         a[2], a[3]  the same, 8 columns further
///   b[0], b[1]  B[2i..][g], B[2i + 8..][g]         (two elements each, the first in the lower half)
///   c[0..1]     C[g][2i..]                         c[2..3]     C[g + 8][2i..]
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory (PTX ISA, ldmatrix.x4): lane l gives the address
/// of row l % 8 of matrix l / 8, 16 bytes and aligned to them; of matrix k the lane gets elements 2 (l % 4)
/// and the next of row l / 4.
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
/// The same with each matrix transposed: the lane gets elements l / 4 of rows 2 (l % 4) and the next.
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Begins to copy 16 bytes from global to shared memory past the registers, or writes 16 zero bytes where not
/// `valid` (the source is not read then).
__device__ inline void copy_async(void* to_shared, const void* from, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to_shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(bytes)
               : "memory");
}
/// Closes a group of this thread's copies.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
/// Waits until at most `Left` of this thread's groups are under way; others see them after a barrier.
template <int Left>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Left) : "memory");
}

}  // namespace triax::cuda
