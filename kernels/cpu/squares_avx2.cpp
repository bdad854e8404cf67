#include "kernels/cpu/squares.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx2,fma")  // up to the end of the file; standard headers stand above it
#include "kernels/cpu/squares_micro.h"

namespace triax::cpu {

namespace {

struct Avx2 {
  static constexpr int lanes = 4;
  typedef double Doubles __attribute__((vector_size(lanes * sizeof(double))));
  typedef uint32_t Words __attribute__((vector_size(2 * lanes * sizeof(uint32_t))));
  static Doubles widen(const float* x) { return _mm256_cvtps_pd(_mm_loadu_ps(x)); }
};

}  // namespace

const SquaresKernel& squares_avx2() {
  return squares_of<Avx2>;
}

}  // namespace triax::cpu

#endif
