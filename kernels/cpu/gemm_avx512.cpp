#include "kernels/cpu/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")  // up to the end of the file
#include "kernels/cpu/gemm_micro.h"
#include "kernels/cpu/transpose.h"

namespace triax::cpu {

namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int lanes = 16, rows = 14, vectors = 2, square = 8;  // 28 of 32 registers hold C
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }

  static void transpose(const float* from, int64_t ld, float* to, int64_t ld_to) {
    transpose_8x8(from, ld, to, ld_to);
  }
};

}  // namespace

void gemm_tile_avx512(const Gemm& op, const GemmTile& tile) {
  GemmPanels<Avx512>::run(op, tile);
}

}  // namespace triax::cpu

#else

namespace triax::cpu {
void gemm_tile_avx512(const Gemm& op, const GemmTile& tile) {
  gemm_tile_generic(op, tile);
}
}  // namespace triax::cpu

#endif
