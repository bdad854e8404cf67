#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

namespace {

/// Rows of a task: about 32 Ki elements, by the shape alone.
int64_t rows_per_task(int64_t h) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(h, 1));
}

/// y = x + (delta + bias) for one row; x and bias may be null, y may be x or delta.
TRIAX_INLINE void add_row(int64_t h, const float* x, const float* delta, const float* bias, float* y) {
  if (x && bias) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = x[i] + (delta[i] + bias[i]);
  } else if (x) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = x[i] + delta[i];
  } else if (bias) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = delta[i] + bias[i];
  } else if (y != delta) {
    std::copy_n(delta, h, y);
  }
}

TRIAX_MULTIVERSION void add_rows(const ResidualAdd& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    add_row(op.h, op.x ? op.x + t * op.h : nullptr, op.delta + t * op.h, op.bias, op.y + t * op.h);
}

/// LayerNorm of one row, in two passes, so that the variance does not cancel.
TRIAX_INLINE void layer_norm_row(const NormForward& op, const float* r, int64_t t) {
  const int64_t h = op.h;
  float* y = op.y + t * h;
  float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < h; ++i) sum += r[i];
  const float mean = sum / static_cast<float>(h);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) squares += (r[i] - mean) * (r[i] - mean);
  const float rstd = 1 / std::sqrt(squares / static_cast<float>(h) + op.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) y[i] = (r[i] - mean) * rstd * op.weight[i] + op.bias[i];
  op.mean[t] = mean;
  op.rstd[t] = rstd;
}

TRIAX_INLINE void rms_norm_row(const NormForward& op, const float* r, int64_t t) {
  const int64_t h = op.h;
  float* y = op.y + t * h;
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) squares += r[i] * r[i];
  const float rstd = 1 / std::sqrt(squares / static_cast<float>(h) + op.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) y[i] = r[i] * rstd * op.weight[i];
  op.rstd[t] = rstd;
}

TRIAX_MULTIVERSION void forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* r = op.x + t * op.h;
    if (op.delta) {
      float* residual = op.residual + t * op.h;
      add_row(op.h, r, op.delta + t * op.h, op.delta_bias, residual);
      r = residual;
    }
    if (op.mean)
      layer_norm_row(op, r, t);
    else
      rms_norm_row(op, r, t);
  }
}

/// With g = dy * weight: dx = dr + rstd * (g - mean(g) - xhat * mean(g * xhat)); RMSNorm has no mean(g).
TRIAX_MULTIVERSION void backward_input_rows(const NormBackwardInput& op, int64_t begin, int64_t end) {
  const int64_t h = op.h;
  for (int64_t t = begin; t < end; ++t) {
    const float *dy = op.dy + t * h, *r = op.residual + t * h, *weight = op.weight;
    const float rstd = op.rstd[t], mean = op.mean ? op.mean[t] : 0;
    float* dx = op.dx + t * h;
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < h; ++i) {
      const float g = dy[i] * weight[i];
      sum += g;
      dot += g * (r[i] - mean);
    }
    const float mean_g = op.mean ? sum / static_cast<float>(h) : 0;
    const float slope = dot * rstd / static_cast<float>(h) * rstd;
    if (op.dr) {
      const float* dr = op.dr + t * h;
#pragma omp simd
      for (int64_t i = 0; i < h; ++i)
        dx[i] = dr[i] + rstd * (dy[i] * weight[i] - mean_g - (r[i] - mean) * slope);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < h; ++i) dx[i] = rstd * (dy[i] * weight[i] - mean_g - (r[i] - mean) * slope);
    }
  }
}

TRIAX_MULTIVERSION void layer_norm_weight_columns(const NormBackwardWeight& op, int64_t begin, int64_t end) {
  const int64_t h = op.h;
  const float *dy = op.dy, *r = op.residual, *mean = op.mean, *rstd = op.rstd;
  const auto scaled = [=](int64_t t, int64_t i) __attribute__((always_inline)) {
    return dy[t * h + i] * ((r[t * h + i] - mean[t]) * rstd[t]);
  };
  const auto plain = [=](int64_t t, int64_t i) __attribute__((always_inline)) {
    return dy[t * h + i];
  };
  column_sums(op.t, begin, end - begin, op.dweight, scaled, op.dbias, plain);
}

TRIAX_MULTIVERSION void rms_norm_weight_columns(const NormBackwardWeight& op, int64_t begin, int64_t end) {
  const int64_t h = op.h;
  const float *dy = op.dy, *r = op.residual, *rstd = op.rstd;
  const auto scaled = [=](int64_t t, int64_t i) __attribute__((always_inline)) {
    return dy[t * h + i] * (r[t * h + i] * rstd[t]);
  };
  column_sums(op.t, begin, end - begin, op.dweight, scaled);
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
  device.threads().parallel_for(op.h, column_strip, [&](int64_t begin, int64_t end) {
    op.mean ? layer_norm_weight_columns(op, begin, end) : rms_norm_weight_columns(op, begin, end);
  });
}

}  // namespace triax::cpu
