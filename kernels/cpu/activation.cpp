#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace triax::cpu {

namespace {

int64_t rows_per_task(int64_t f) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(f, 1));
}

// GELU's tanh form is z * sigmoid(2 v) with v = sqrt(2/pi) (z + 0.044715 z^3), since (1 + tanh v) / 2 =
// sigmoid(2 v): one exponential, and no cancellation in the negative tail.
constexpr float gelu_slope = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.044715f;

/// e^(-2 v).
TRIAX_INLINE float gelu_exponential(float z) {
  return exp_of(-gelu_slope * (z + gelu_cubic * z * z * z));
}

/// min(x, 1e30) for x >= 0, by the bits: a comparison of floats would be compiled as a branch. So bounded,
/// e * s is 1 - s also where s = 1 / (1 + e) vanishes.
TRIAX_INLINE float at_most_1e30(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x), most = __builtin_bit_cast(uint32_t, 1e30f);
  return __builtin_bit_cast(float, bits < most ? bits : most);
}

TRIAX_INLINE float gelu_of(float z) {
  return z / (1 + gelu_exponential(z));
}
TRIAX_INLINE float silu_of(float g) {
  return g / (1 + exp_of(-g));
}

template <class T>
TRIAX_INLINE void gelu_rows_of(const BiasGeluForward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T *u = op.u.as<T>() + t * op.f, *bias = op.bias.as<T>();
    T* y = op.y.as<T>() + t * op.f;
#pragma omp simd
    for (int64_t i = 0; i < op.f; ++i) {
      y[i] = rounded<T>(gelu_of(value_of(u[i]) + value_of(bias[i])));
    }
  }
}
TRIAX_MULTIVERSION void gelu_rows(const BiasGeluForward& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.y, gelu_rows_of, op, begin, end);
}

/// `again`: y, too.
template <class T, bool again>
TRIAX_INLINE void gelu_backward_rows_of(const BiasGeluBackward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T *u = op.u.as<T>() + t * op.f, *bias = op.bias.as<T>(), *dy = op.dy.as<T>() + t * op.f;
    T *du = op.du.as<T>() + t * op.f, *y = again ? op.y.as<T>() + t * op.f : nullptr;
#pragma omp simd
    for (int64_t i = 0; i < op.f; ++i) {
      const float z = value_of(u[i]) + value_of(bias[i]), e = at_most_1e30(gelu_exponential(z));
      const float s = 1 / (1 + e);
      const float slope = gelu_slope * (1 + 3 * gelu_cubic * z * z);
      du[i] = rounded<T>(value_of(dy[i]) * (s + z * s * (e * s) * slope));
      if constexpr (again) y[i] = rounded<T>(gelu_of(z));
    }
  }
}
TRIAX_MULTIVERSION void gelu_backward_rows(const BiasGeluBackward& op, int64_t begin, int64_t end) {
  with_element_type(
      op.du.dtype(), bool(op.y), [&](auto type, auto again) __attribute__((always_inline)) {
        gelu_backward_rows_of<decltype(type), again>(op, begin, end);
      });
}

template <class T>
TRIAX_INLINE void swiglu_rows_of(const SwigluForward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T *gate = op.gu.as<T>() + t * 2 * op.f, *up = gate + op.f;
    T* y = op.y.as<T>() + t * op.f;
#pragma omp simd
    for (int64_t i = 0; i < op.f; ++i) {
      y[i] = rounded<T>(silu_of(value_of(gate[i])) * value_of(up[i]));
    }
  }
}
TRIAX_MULTIVERSION void swiglu_rows(const SwigluForward& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.y, swiglu_rows_of, op, begin, end);
}

template <class T, bool again>
TRIAX_INLINE void swiglu_backward_rows_of(const SwigluBackward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T *gate = op.gu.as<T>() + t * 2 * op.f, *up = gate + op.f, *dy = op.dy.as<T>() + t * op.f;
    T *dgate = op.dgu.as<T>() + t * 2 * op.f, *dup = dgate + op.f;
    T* y = again ? op.y.as<T>() + t * op.f : nullptr;
#pragma omp simd
    for (int64_t i = 0; i < op.f; ++i) {
      const float g = value_of(gate[i]), x = value_of(up[i]), d = value_of(dy[i]), s = 1 / (1 + exp_of(-g));
      dgate[i] = rounded<T>(d * x * s * (1 + g * (1 - s)));
      dup[i] = rounded<T>(d * (g * s));
      if constexpr (again) y[i] = rounded<T>(silu_of(g) * x);
    }
  }
}
TRIAX_MULTIVERSION void swiglu_backward_rows(const SwigluBackward& op, int64_t begin, int64_t end) {
  with_element_type(
      op.dgu.dtype(), bool(op.y), [&](auto type, auto again) __attribute__((always_inline)) {
        swiglu_backward_rows_of<decltype(type), again>(op, begin, end);
      });
}

}  // namespace

void bias_gelu_forward(Device& device, const BiasGeluForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.f),
                                [&](int64_t begin, int64_t end) { gelu_rows(op, begin, end); });
}

void bias_gelu_backward(Device& device, const BiasGeluBackward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.f),
                                [&](int64_t begin, int64_t end) { gelu_backward_rows(op, begin, end); });
}

void swiglu_forward(Device& device, const SwigluForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.f),
                                [&](int64_t begin, int64_t end) { swiglu_rows(op, begin, end); });
}

void swiglu_backward(Device& device, const SwigluBackward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.f),
                                [&](int64_t begin, int64_t end) { swiglu_backward_rows(op, begin, end); });
}

}  // namespace triax::cpu
