#include "kernels/cpu/gemm_micro.h"

namespace triax::cpu {

namespace {

/// Any processor: vectors of four, without a fused multiply-add.
struct Generic {
  typedef float Vector __attribute__((vector_size(16)));
  static constexpr int lanes = 4, rows = 4, vectors = 2, square = 4, pair = 1;
  static constexpr bool streams = false, packs_within = true;
  static Vector zero() { return Vector{0, 0, 0, 0}; }
  static Vector load(const float* p) {
    Vector v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }
  static Vector broadcast(const float* p) { return Vector{*p, *p, *p, *p}; }
  static Vector add(Vector a, Vector b) { return a + b; }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }

  template <class T>
  static void transpose(const T* from, int64_t ld, float* to, int64_t ld_to) {
    for (int k = 0; k < square; ++k)
      for (int j = 0; j < square; ++j) to[k * ld_to + j] = value_of(from[j * ld + k]);
  }
};

}  // namespace

const GemmCode gemm_generic = GemmOf<Generic>::code;

}  // namespace triax::cpu
