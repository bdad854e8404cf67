#pragma once

#include <cmath>

#include "model/config.h"

namespace triax {

/// Standard deviation of the projections that write into the residual stream: GPT-2 divides by sqrt(2 layers)
/// (Radford et al. 2019), LLaMA does not.
inline float residual_stddev(const ModelConfig& model) {
  const double scale =
      model.architecture == Architecture::gpt2 ? std::sqrt(2.0 * model.num_hidden_layers) : 1.0;
  return static_cast<float>(model.initializer_range / scale);
}

}  // namespace triax
