#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/tasks.h"

namespace triax::cpu {

namespace {

/// Rows of a task: about 32 Ki elements, by the shape alone.
/// y = x + (delta + bias) for one row; x and bias may be null, y may be x or delta.
template <class T>
TRIAX_INLINE void add_row(int64_t h, const T* x, const T* delta, const T* bias, T* y) {
  if (x && bias) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i)
      y[i] = rounded<T>(value_of(x[i]) + (value_of(delta[i]) + value_of(bias[i])));
  } else if (x) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = rounded<T>(value_of(x[i]) + value_of(delta[i]));
  } else if (bias) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = rounded<T>(value_of(delta[i]) + value_of(bias[i]));
  } else if (y != delta) {
    std::copy_n(delta, h, y);
  }
}

/// Row t, or null.
template <class T>
TRIAX_INLINE const T* row_of(const ConstElements& x, int64_t t, int64_t h) {
  return x ? x.as<T>() + t * h : nullptr;
}

template <class T>
TRIAX_INLINE void add_rows_of(const ResidualAdd& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    add_row<T>(op.h, row_of<T>(op.x, t, op.h), op.delta.as<T>() + t * op.h, op.bias.as<T>(),
               op.y.as<T>() + t * op.h);
}
TRIAX_MULTIVERSION void add_rows(const ResidualAdd& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.y, add_rows_of, op, begin, end);
}

/// LayerNorm of one row, in two passes, so that the variance does not cancel.
template <class T>
TRIAX_INLINE void layer_norm_row(const NormForward& op, const T* r, int64_t t) {
  const int64_t h = op.h;
  const T *weight = op.weight.as<T>(), *bias = op.bias.as<T>();
  T* y = op.y.as<T>() + t * h;
  float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < h; ++i) sum += value_of(r[i]);
  const float mean = sum / static_cast<float>(h);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) {
    const float x = value_of(r[i]) - mean;
    squares += x * x;
  }
  const float rstd = 1 / std::sqrt(squares / static_cast<float>(h) + op.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < h; ++i)
    y[i] = rounded<T>((value_of(r[i]) - mean) * rstd * value_of(weight[i]) + value_of(bias[i]));
  op.mean[t] = mean;
  op.rstd[t] = rstd;
}

template <class T>
TRIAX_INLINE void rms_norm_row(const NormForward& op, const T* r, int64_t t) {
  const int64_t h = op.h;
  const T* weight = op.weight.as<T>();
  T* y = op.y.as<T>() + t * h;
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) squares += value_of(r[i]) * value_of(r[i]);
  const float rstd = 1 / std::sqrt(squares / static_cast<float>(h) + op.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) y[i] = rounded<T>(value_of(r[i]) * rstd * value_of(weight[i]));
  op.rstd[t] = rstd;
}

template <class T>
TRIAX_INLINE void forward_rows_of(const NormForward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* r = op.x.as<T>() + t * op.h;
    if (op.delta) {
      T* residual = op.residual.as<T>() + t * op.h;
      add_row<T>(op.h, r, op.delta.as<T>() + t * op.h, op.delta_bias.as<T>(), residual);
      r = residual;
    }
    if (op.mean)
      layer_norm_row<T>(op, r, t);
    else
      rms_norm_row<T>(op, r, t);
  }
}
TRIAX_MULTIVERSION void forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.y, forward_rows_of, op, begin, end);
}

/// With g = dy * weight: dx = dr + rstd * (g - mean(g) - xhat * mean(g * xhat)); RMSNorm has no mean(g).
template <class T>
TRIAX_INLINE void backward_input_rows_of(const NormBackwardInput& op, int64_t begin, int64_t end) {
  const int64_t h = op.h;
  for (int64_t t = begin; t < end; ++t) {
    const T *dy = op.dy.as<T>() + t * h, *r = op.residual.as<T>() + t * h, *weight = op.weight.as<T>();
    const float rstd = op.rstd[t], mean = op.mean ? op.mean[t] : 0;
    T* dx = op.dx.as<T>() + t * h;
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < h; ++i) {
      const float g = value_of(dy[i]) * value_of(weight[i]);
      sum += g;
      dot += g * (value_of(r[i]) - mean);
    }
    const float mean_g = op.mean ? sum / static_cast<float>(h) : 0;
    const float slope = dot * rstd / static_cast<float>(h) * rstd;
    if (op.dr) {
      const T* dr = op.dr.as<T>() + t * h;
#pragma omp simd
      for (int64_t i = 0; i < h; ++i)
        dx[i] = rounded<T>(value_of(dr[i]) + rstd * (value_of(dy[i]) * value_of(weight[i]) - mean_g -
                                                     (value_of(r[i]) - mean) * slope));
    } else {
#pragma omp simd
      for (int64_t i = 0; i < h; ++i)
        dx[i] = rounded<T>(
            rstd * (value_of(dy[i]) * value_of(weight[i]) - mean_g - (value_of(r[i]) - mean) * slope));
    }
  }
}
TRIAX_MULTIVERSION void backward_input_rows(const NormBackwardInput& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.dx, backward_input_rows_of, op, begin, end);
}

template <class T>
TRIAX_INLINE void layer_norm_weight_columns(const NormBackwardWeight& op, int64_t begin, int64_t end) {
  const int64_t h = op.h;
  const T *dy = op.dy.as<T>(), *r = op.residual.as<T>();
  const float *mean = op.mean, *rstd = op.rstd;
  const auto scaled = [=](int64_t t, int64_t i) __attribute__((always_inline)) {
    return value_of(dy[t * h + i]) * ((value_of(r[t * h + i]) - mean[t]) * rstd[t]);
  };
  const auto plain = [=](int64_t t, int64_t i) __attribute__((always_inline)) {
    return value_of(dy[t * h + i]);
  };
  column_sums(op.t, begin, end - begin, op.dweight, scaled, op.dbias, plain);
}

template <class T>
TRIAX_INLINE void rms_norm_weight_columns(const NormBackwardWeight& op, int64_t begin, int64_t end) {
  const int64_t h = op.h;
  const T *dy = op.dy.as<T>(), *r = op.residual.as<T>();
  const float* rstd = op.rstd;
  const auto scaled = [=](int64_t t, int64_t i) __attribute__((always_inline)) {
    return value_of(dy[t * h + i]) * (value_of(r[t * h + i]) * rstd[t]);
  };
  column_sums(op.t, begin, end - begin, op.dweight, scaled);
}

template <class T>
TRIAX_INLINE void weight_columns_of(const NormBackwardWeight& op, int64_t begin, int64_t end) {
  op.mean ? layer_norm_weight_columns<T>(op, begin, end) : rms_norm_weight_columns<T>(op, begin, end);
}
TRIAX_MULTIVERSION void weight_columns(const NormBackwardWeight& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.dy, weight_columns_of, op, begin, end);
}

}  // namespace

void residual_add(Device& device, const ResidualAdd& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h),
                                [&](int64_t begin, int64_t end) { add_rows(op, begin, end); });
}

void norm_forward(Device& device, const NormForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h),
                                [&](int64_t begin, int64_t end) { forward_rows(op, begin, end); });
}

void norm_backward_input(Device& device, const NormBackwardInput& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h),
                                [&](int64_t begin, int64_t end) { backward_input_rows(op, begin, end); });
}

void norm_backward_weight(Device& device, const NormBackwardWeight& op) {
  device.threads().parallel_for(op.h, column_strip,
                                [&](int64_t begin, int64_t end) { weight_columns(op, begin, end); });
}

}  // namespace triax::cpu
