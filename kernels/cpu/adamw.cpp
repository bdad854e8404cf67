#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/tasks.h"

namespace triax::cpu {

namespace {

constexpr int64_t kGrain = 1 << 16;  // most elements of a task: 1.8 MB of traffic
constexpr int64_t kBlock = 16;       // elements that are always computed together
constexpr int64_t kRounded = 4096;   // elements that are rounded while they are in the first cache

/// The step's constants, rounded to float once.
struct Factors {
  float decay, step, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_root, epsilon, grad_scale;
};

Factors factors_of(const AdamW& op) {
  const UpdateScalars& s = *op.scalars;
  return {.decay = static_cast<float>(static_cast<double>(s.lr) * op.weight_decay),
          .step = static_cast<float>(static_cast<double>(s.lr) / s.bias_correction1),
          .beta1 = op.beta1,
          .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(op.beta1)),
          .beta2 = op.beta2,
          .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(op.beta2)),
          .inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.bias_correction2))),
          .epsilon = op.epsilon,
          .grad_scale = s.grad_scale};
}

/// Whole blocks, so that there is one code for every element: a compiler's scalar remainder might fuse other
/// multiply-adds than its vector body, and an element's bits would depend on its position in the range.
TRIAX_MULTIVERSION void update_blocks(int64_t blocks, float* __restrict weight, const float* __restrict grad,
                                      float* __restrict exp_avg, float* __restrict exp_avg_sq,
                                      const Factors f) {
#pragma omp simd
  for (int64_t i = 0; i < blocks * kBlock; ++i) {
    const float g = grad[i] * f.grad_scale;
    const float m = f.beta1 * exp_avg[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    // The small terms first: the weight is rounded once.
    const float change = f.step * m / (std::sqrt(v) * f.inverse_root + f.epsilon);
    weight[i] -= f.decay * weight[i] + change;
  }
}

/// Fewer elements than a block, through a block of their own.
void update_tail(int64_t n, float* weight, const float* grad, float* exp_avg, float* exp_avg_sq,
                 const Factors& f) {
  float w[kBlock] = {}, g[kBlock] = {}, m[kBlock] = {}, v[kBlock] = {};
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  std::memcpy(w, weight, bytes);
  std::memcpy(g, grad, bytes);
  std::memcpy(m, exp_avg, bytes);
  std::memcpy(v, exp_avg_sq, bytes);
  update_blocks(1, w, g, m, v, f);
  std::memcpy(weight, w, bytes);
  std::memcpy(exp_avg, m, bytes);
  std::memcpy(exp_avg_sq, v, bytes);
}

void update_range(const AdamW& op, int64_t begin, int64_t end, const Factors& f) {
  const int64_t blocks = (end - begin) / kBlock, tail = begin + blocks * kBlock;
  update_blocks(blocks, op.weight + begin, op.grad + begin, op.exp_avg + begin, op.exp_avg_sq + begin, f);
  if (tail < end)
    update_tail(end - tail, op.weight + tail, op.grad + tail, op.exp_avg + tail, op.exp_avg_sq + tail, f);
}

}  // namespace

void adamw(Device& device, const AdamW& op) {
  if (op.scalars->skip) return;
  const Factors f = factors_of(op);
  const int64_t grain = even_grain(op.n, device.threads().size(), kGrain, kBlock);
  device.threads().parallel_for(op.n, grain, [&](int64_t begin, int64_t end) {
    if (!op.rounded) return update_range(op, begin, end, f);
    for (int64_t i = begin; i < end; i += kRounded) {
      const int64_t next = std::min(end, i + kRounded);
      update_range(op, i, next, f);
      round_range(op.weight + i, op.rounded + i, next - i);
    }
  });
}

void decide_update(Device&, const DecideUpdate& op) {
  const double squared_norm = op.squared_norm->value(), norm = std::sqrt(squared_norm);
  if (!std::isfinite(norm) || !std::isfinite(op.loss->value())) op.scalars->skip = 1;
  op.scalars->grad_scale =
      op.max_norm > 0 ? static_cast<float>(std::min(1.0, op.max_norm / (norm + 1e-6))) : 1.0F;
}

}  // namespace triax::cpu
