#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/bf16.h"

// For files that are compiled for AVX2 and above; unnamed, so that each target has its own copy.
namespace triax::cpu {

namespace {

inline __m256 load_8(const float* p) {
  return _mm256_loadu_ps(p);
}
/// Eight bf16, widened.
inline __m256 load_8(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// to[j * ld_to + i] = load(i)[j] for i, j in [0, 8).
template <class Load>
inline void transpose_8x8(const Load& load, float* to, int64_t ld_to) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = load(i);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * ld_to, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * ld_to, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

}  // namespace

}  // namespace triax::cpu
