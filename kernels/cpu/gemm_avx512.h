#pragma once

#include <immintrin.h>

#include "kernels/cpu/gemm_micro.h"
#include "kernels/cpu/transpose.h"

// For files that are compiled for AVX-512; unnamed, so that each has its own copy.
namespace triax::cpu {

namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int lanes = 16, rows = 8, vectors = 2, square = 8, pair = 1;  // 16 of 32 registers hold C
  static constexpr bool streams = true, packs_within = true;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static void stream(float* p, Vector v) { _mm512_stream_ps(p, v); }
  static void streamed() { _mm_sfence(); }
  static Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }

  template <class T>
  static void transpose(const T* from, int64_t ld, float* to, int64_t ld_to) {
    transpose_8x8([=](int i) { return load_8(from + i * ld); }, to, ld_to);
  }
};

}  // namespace

}  // namespace triax::cpu
