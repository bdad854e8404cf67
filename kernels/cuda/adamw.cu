#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda.h"

namespace triax::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;  // enough to fill any card; more elements go through the loop

/// The step's constants, rounded to float once, as in cpu/adamw.cpp.
struct Factors {
  float keep, step, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_root, epsilon, grad_scale;
};

Factors factors_of(const AdamW& op) {
  return {.keep = static_cast<float>(1.0 - static_cast<double>(op.lr) * op.weight_decay),
          .step = static_cast<float>(static_cast<double>(op.lr) / op.bias_correction1),
          .beta1 = op.beta1,
          .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(op.beta1)),
          .beta2 = op.beta2,
          .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(op.beta2)),
          .inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(op.bias_correction2))),
          .epsilon = op.epsilon,
          .grad_scale = op.grad_scale};
}

/// An element's result depends on that element alone, so the size of the launch does not show in the bits.
__global__ void update(int64_t n, float* __restrict__ weight, const float* __restrict__ grad,
                       float* __restrict__ exp_avg, float* __restrict__ exp_avg_sq, Factors f) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const float g = grad[i] * f.grad_scale;
    const float m = f.beta1 * exp_avg[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weight[i] = weight[i] * f.keep - f.step * m / (sqrtf(v) * f.inverse_root + f.epsilon);
  }
}

}  // namespace

void adamw(cudaStream_t stream, const AdamW& op) {
  if (op.n == 0) return;
  const auto blocks = static_cast<unsigned>(std::min((op.n + kThreads - 1) / kThreads, kMaxBlocks));
  update<<<blocks, kThreads, 0, stream>>>(op.n, op.weight, op.grad, op.exp_avg, op.exp_avg_sq,
                                          factors_of(op));
  const cudaError_t status = cudaGetLastError();
  check(status == cudaSuccess, "CUDA refused the AdamW kernel on {} elements: {}", op.n,
        cudaGetErrorString(status));
}

}  // namespace triax::cuda
