#include "optim/noise_scale.h"

#include <cmath>

namespace triax {

NoiseSample noise_sample(double small_squared, double small_batch, double big_squared, double big_batch) {
  return {(big_batch * big_squared - small_batch * small_squared) / (big_batch - small_batch),
          (small_squared - big_squared) / (1 / small_batch - 1 / big_batch)};
}

void NoiseAverages::add(const NoiseSample& sample) {
  if (!std::isfinite(sample.norm_squared) || !std::isfinite(sample.trace)) return;
  norm_squared = decay * norm_squared + (1 - decay) * sample.norm_squared;
  trace = decay * trace + (1 - decay) * sample.trace;
  weight = decay * weight + (1 - decay);
}

// Both averages are short by the same weight.
std::optional<double> NoiseAverages::scale() const {
  if (weight == 0 || norm_squared <= 0) return std::nullopt;
  return trace / norm_squared;
}

}  // namespace triax
