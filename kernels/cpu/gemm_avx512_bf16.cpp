#include "kernels/cpu/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,avx2,fma")  // up to the end of the file
#include "kernels/cpu/gemm_avx512.h"

namespace triax::cpu {

namespace {

/// Multiplies pairs of bf16 and adds both products to an fp32 sum in one instruction, vdpbf16ps; it takes
/// denormal numbers for zero.
struct Avx512Bf16 : Avx512 {
  static constexpr int pair = 2;
  static Vector broadcast(const float* p) {  // of a pair, which may lie at any even address
    int32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
  }
  static Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_dpbf16_ps(c, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
  static void transpose(const bf16* from, int64_t ld, float* to, int64_t ld_to) {
    transpose_8x8(
        [=](int i) {
          return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * ld)));
        },
        to, ld_to);
  }
};

}  // namespace

const GemmCode gemm_avx512_bf16 = GemmOf<Avx512Bf16>::code;

}  // namespace triax::cpu

#else

namespace triax::cpu {
const GemmCode gemm_avx512_bf16{};
}  // namespace triax::cpu

#endif
