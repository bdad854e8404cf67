#include "kernels/cpu/attention_blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")  // up to the end of the file
#include "kernels/cpu/attention_micro.h"
#include "kernels/cpu/transpose.h"

namespace triax::cpu {

namespace {

struct Avx512 {
  typedef float Vector __attribute__((vector_size(64)));
  typedef uint32_t Bits __attribute__((vector_size(64)));
  static constexpr int lanes = 16, rows = 8, vectors = 2, square = 8;  // 16 of 32 registers hold the tile
  template <class T>
  static void transpose(const T* from, int64_t ld, float* to, int64_t ld_to) {
    transpose_8x8([=](int i) { return load_8(from + i * ld); }, to, ld_to);
  }
};

}  // namespace

const AttentionPieces& attention_avx512() {
  return AttentionKernel<Avx512>::pieces;
}

}  // namespace triax::cpu

#else

namespace triax::cpu {
const AttentionPieces& attention_avx512() {
  return attention_generic();
}
}  // namespace triax::cpu

#endif
