#include "kernels/cpu/attention_blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#pragma GCC target("avx2,fma")  // up to the end of the file; standard headers stand above it
#include "kernels/cpu/attention_micro.h"
#include "kernels/cpu/transpose.h"

namespace triax::cpu {

namespace {

struct Avx2 {
  typedef float Vector __attribute__((vector_size(32)));
  typedef uint32_t Bits __attribute__((vector_size(32)));
  static constexpr int lanes = 8, rows = 6, vectors = 2, square = 8;  // 12 of 16 registers hold the tile
  template <class T>
  static void transpose(const T* from, int64_t ld, float* to, int64_t ld_to) {
    transpose_8x8([=](int i) { return load_8(from + i * ld); }, to, ld_to);
  }
};

}  // namespace

const AttentionPieces& attention_avx2() {
  return AttentionKernel<Avx2>::pieces;
}

}  // namespace triax::cpu

#else

namespace triax::cpu {
const AttentionPieces& attention_avx2() {
  return attention_generic();
}
}  // namespace triax::cpu

#endif
