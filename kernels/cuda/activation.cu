#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"

namespace triax::cuda {

namespace {

// GELU's tanh form is z * sigmoid(2 v) with v = sqrt(2/pi) (z + 0.044715 z^3), as in cpu/activation.cpp.
constexpr float kGeluSlope = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715f;
constexpr float kLog2e = 1.4426950408889634f;

/// 1 / (1 + e^-x): 0 where e^-x is infinite.
__device__ inline float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + exp2_fast(-kLog2e * x));
}

__device__ inline float gelu_argument(float z) {
  return kGeluSlope * (z + kGeluCubic * z * z * z);
}

template <class T, int W>
__global__ void gelu(int64_t f, int cuts, const T* u, const T* bias, T* y) {
  visit_row<W>(f, cuts, [&](int64_t t, int64_t c) {
    float z[W], b[W];
    load(u + t * f + c, z);
    if (bias) {
      load(bias + c, b);
#pragma unroll
      for (int k = 0; k < W; ++k) z[k] += b[k];
    }
#pragma unroll
    for (int k = 0; k < W; ++k) {
      z[k] *= sigmoid(gelu_argument(z[k]));
    }
    store(y + t * f + c, z);
  });
}

template <class T, int W>
__global__ void gelu_backward(int64_t f, int cuts, const T* u, const T* bias, const T* dy, T* du, T* y) {
  visit_row<W>(f, cuts, [&](int64_t t, int64_t c) {
    float x[W], b[W], d[W];
    load(u + t * f + c, x);
    load(dy + t * f + c, d);
    if (bias) {
      load(bias + c, b);
#pragma unroll
      for (int k = 0; k < W; ++k) x[k] += b[k];
    }
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float z = x[k], s = sigmoid(gelu_argument(z));
      const float slope = kGeluSlope * (1 + 3 * kGeluCubic * z * z);
      // 1 - s by its own sigmoid: no cancellation where s is near 1.
      d[k] *= s + z * s * (sigmoid(-gelu_argument(z)) * slope);
      x[k] *= s;
    }
    store(du + t * f + c, d);
    if (y) store(y + t * f + c, x);
  });
}

template <class T, int W>
__global__ void swiglu(int64_t f, int cuts, const T* gu, T* y) {
  visit_row<W>(f, cuts, [&](int64_t t, int64_t c) {
    float g[W], x[W];
    load(gu + t * 2 * f + c, g);
    load(gu + t * 2 * f + f + c, x);
#pragma unroll
    for (int k = 0; k < W; ++k) g[k] *= sigmoid(g[k]) * x[k];
    store(y + t * f + c, g);
  });
}

template <class T, int W>
__global__ void swiglu_backward(int64_t f, int cuts, const T* gu, const T* dy, T* dgu, T* y) {
  visit_row<W>(f, cuts, [&](int64_t t, int64_t c) {
    float g[W], x[W], d[W], again[W];
    load(gu + t * 2 * f + c, g);
    load(gu + t * 2 * f + f + c, x);
    load(dy + t * f + c, d);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float s = sigmoid(g[k]);
      again[k] = g[k] * (s * x[k]);
      const float dgate = d[k] * x[k] * s * (1 + g[k] * (1 - s));
      x[k] = d[k] * (g[k] * s);
      g[k] = dgate;
    }
    store(dgu + t * 2 * f + c, g);
    store(dgu + t * 2 * f + f + c, x);
    if (y) store(y + t * f + c, again);
  });
}

}  // namespace

void bias_gelu_forward(Device& device, const BiasGeluForward& op) {
  if (op.t == 0 || op.f == 0) return;
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *u = op.u.as<T>(), *bias = op.bias.as<T>();
    T* y = op.y.as<T>();
    with_width<vector_of<T>>(op.f % vector_of<T> == 0 && aligned16(u, bias, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.f);
      launch("GELU", cuda_device(device), gelu<T, w>, grid.grid, grid.threads, 0, op.f, grid.pieces, u, bias,
             y);
    });
  });
}

void bias_gelu_backward(Device& device, const BiasGeluBackward& op) {
  if (op.t == 0 || op.f == 0) return;
  with_element_type(op.du.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *u = op.u.as<T>(), *bias = op.bias.as<T>(), *dy = op.dy.as<T>();
    T *du = op.du.as<T>(), *y = op.y.as<T>();
    with_width<vector_of<T>>(op.f % vector_of<T> == 0 && aligned16(u, bias, dy, du, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.f);
      launch("GELU backward", cuda_device(device), gelu_backward<T, w>, grid.grid, grid.threads, 0, op.f,
             grid.pieces, u, bias, dy, du, y);
    });
  });
}

void swiglu_forward(Device& device, const SwigluForward& op) {
  if (op.t == 0 || op.f == 0) return;
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gu = op.gu.as<T>();
    T* y = op.y.as<T>();
    with_width<vector_of<T>>(op.f % vector_of<T> == 0 && aligned16(gu, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.f);
      launch("SwiGLU", cuda_device(device), swiglu<T, w>, grid.grid, grid.threads, 0, op.f, grid.pieces, gu,
             y);
    });
  });
}

void swiglu_backward(Device& device, const SwigluBackward& op) {
  if (op.t == 0 || op.f == 0) return;
  with_element_type(op.dgu.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *gu = op.gu.as<T>(), *dy = op.dy.as<T>();
    T *dgu = op.dgu.as<T>(), *y = op.y.as<T>();
    with_width<vector_of<T>>(op.f % vector_of<T> == 0 && aligned16(gu, dy, dgu, y), [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.f);
      launch("SwiGLU backward", cuda_device(device), swiglu_backward<T, w>, grid.grid, grid.threads, 0, op.f,
             grid.pieces, gu, dy, dgu, y);
    });
  });
}

}  // namespace triax::cuda
