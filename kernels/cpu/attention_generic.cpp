#include "kernels/cpu/attention_micro.h"

namespace triax::cpu {

namespace {

/// Any processor: vectors of four, without a fused multiply-add.
struct Generic {
  typedef float Vector __attribute__((vector_size(16)));
  typedef uint32_t Bits __attribute__((vector_size(16)));
  static constexpr int lanes = 4, rows = 4, vectors = 2, square = 4;
  template <class T>
  static void transpose(const T* from, int64_t ld, float* to, int64_t ld_to) {
    for (int k = 0; k < square; ++k)
      for (int j = 0; j < square; ++j) to[k * ld_to + j] = value_of(from[j * ld + k]);
  }
};

}  // namespace

const AttentionPieces& attention_generic() {
  return AttentionKernel<Generic>::pieces;
}

}  // namespace triax::cpu
