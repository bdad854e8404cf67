#include "kernels/cpu/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx2,fma")  // up to the end of the file; standard headers stand above it
#include "kernels/cpu/gemm_micro.h"
#include "kernels/cpu/transpose.h"

namespace triax::cpu {

namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int lanes = 8, rows = 6, vectors = 2, square = 8, pair = 1;  // 12 of 16 registers hold C
  static constexpr bool streams = true, packs_within = false;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static void stream(float* p, Vector v) { _mm256_stream_ps(p, v); }
  static void streamed() { _mm_sfence(); }
  static Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

  template <class T>
  static void transpose(const T* from, int64_t ld, float* to, int64_t ld_to) {
    transpose_8x8([=](int i) { return load_8(from + i * ld); }, to, ld_to);
  }
};

}  // namespace

const GemmCode gemm_avx2 = GemmOf<Avx2>::code;

}  // namespace triax::cpu

#else

namespace triax::cpu {
const GemmCode gemm_avx2{};
}  // namespace triax::cpu

#endif
