#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"

namespace triax {

/// Radians from one position to the next of pair i of `half` (RopeStretch tells what long contexts do to it).
inline double rope_frequency(float theta, const RopeStretch& stretch, int64_t half, int64_t i) {
  const double f = std::pow(static_cast<double>(theta), -static_cast<double>(i) / static_cast<double>(half));
  if (stretch.factor == 1) return f;
  if (stretch.context == 0) return f / stretch.factor;
  const double turns = stretch.context * f / (2 * M_PI);
  const double s = std::clamp((turns - stretch.low) / (stretch.high - stretch.low), 0.0, 1.0);
  return f * ((1 - s) / stretch.factor + s);
}

}  // namespace triax
