#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"

namespace triax::cuda {

namespace {

// The update's scalars cost a thread some two hundred double operations: as much as several packs' bytes.
constexpr int kPacks = 8;

/// One pass over weight, gradient and moments, and the rounded weight. An element's result depends on that element alone, so neither
/// the width nor the size of the launch shows in the bits.
template <int W>
__global__ void __launch_bounds__(array_threads) update(AdamW op) {
  const UpdateScalars s = *op.scalars;
  if (s.skip) return;
  // The step's constants in double, rounded to float once, as on the CPU.
  const auto decay = static_cast<float>(static_cast<double>(s.lr) * op.weight_decay);
  const auto step = static_cast<float>(static_cast<double>(s.lr) / s.bias_correction1);
  const auto one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(op.beta1));
  const auto one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(op.beta2));
  const auto inverse_root = static_cast<float>(1.0 / sqrt(static_cast<double>(s.bias_correction2)));
  visit_array<W, kPacks>(op.n, [&](int64_t i, auto width) {
    constexpr int n = decltype(width)::value;
    float w[n], g[n], m[n], v[n];
    load(op.weight + i, w);
    load(op.grad + i, g);
    load(op.exp_avg + i, m);
    load(op.exp_avg_sq + i, v);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float x = g[k] * s.grad_scale;
      m[k] = op.beta1 * m[k] + one_minus_beta1 * x;
      v[k] = op.beta2 * v[k] + one_minus_beta2 * x * x;
      // The small terms first: the weight is rounded once.
      const float change = step * m[k] / (sqrtf(v[k]) * inverse_root + op.epsilon);
      w[k] -= decay * w[k] + change;
    }
    store(op.weight + i, w);
    if (op.rounded) store(op.rounded + i, w);
    store(op.exp_avg + i, m);
    store(op.exp_avg_sq + i, v);
  });
}

__global__ void decide(DecideUpdate op) {
  const double norm = sqrt(op.squared_norm->value());
  if (!isfinite(norm) || !isfinite(op.loss->value())) op.scalars->skip = 1;
  const double factor = op.max_norm / (norm + 1e-6);
  op.scalars->grad_scale = op.max_norm > 0 ? static_cast<float>(factor < 1.0 ? factor : 1.0) : 1.0f;
}

}  // namespace

void adamw(Device& device, const AdamW& op) {
  if (op.n == 0) return;
  with_width<4>(aligned16(op.weight, op.grad, op.exp_avg, op.exp_avg_sq, op.rounded), [&](auto width) {
    constexpr int w = decltype(width)::value;
    launch("AdamW", cuda_device(device), update<w>, array_blocks<w, kPacks>(op.n), array_threads, 0, op);
  });
}

void decide_update(Device& device, const DecideUpdate& op) {
  launch("update decision", cuda_device(device), decide, 1, 1, 0, op);
}

}  // namespace triax::cuda
