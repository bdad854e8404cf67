#include "kernels/cpu/squares.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx512f,avx2,fma")  // up to the end of the file; standard headers stand above it
#include "kernels/cpu/squares_micro.h"

namespace triax::cpu {

namespace {

struct Avx512 {
  static constexpr int lanes = 8;
  typedef double Doubles __attribute__((vector_size(lanes * sizeof(double))));
  typedef uint32_t Words __attribute__((vector_size(2 * lanes * sizeof(uint32_t))));
  // Of the plain conversion GCC 12 makes four instructions.
  static Doubles widen(const float* x) { return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(x)); }
};

}  // namespace

const SquaresKernel& squares_avx512() {
  return squares_of<Avx512>;
}

}  // namespace triax::cpu

#endif
