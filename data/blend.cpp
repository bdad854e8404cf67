#include "data/blend.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace triax {
namespace {

// floor(n share + 1/2): monotone, and in steps of at most one because the share is at most 1.
int64_t served(int64_t n, uint64_t share) {
  const auto product = static_cast<unsigned __int128>(n) * share;
  return static_cast<int64_t>((product + (static_cast<unsigned __int128>(1) << 63)) >> 64);
}

}  // namespace

Blend::Blend(std::span<const double> weights) {
  if (weights.empty()) fail_usage("there is no data source; list at least one {{path: FILE}}");
  for (size_t k = 0; k < weights.size(); ++k)
    if (!(weights[k] > 0) || !std::isfinite(weights[k]))
      fail_usage("data source {} has the weight {}; a weight is a positive number", k, weights[k]);
  // Summed from the end, as they are used, and scaled first, so that no sum overflows.
  const double largest = *std::max_element(weights.begin(), weights.end());
  double left = weights.back() / largest;
  shares_.resize(weights.size() - 1);
  for (size_t k = shares_.size(); k-- > 0;) {
    left += weights[k] / largest;
    const double scaled = std::ldexp(weights[k] / largest / left, 64);
    shares_[k] = scaled < 0x1p64 ? static_cast<uint64_t>(scaled) : ~uint64_t{0};
  }
}

Blend::Draw Blend::draw(int64_t n) const {
  check(n >= 0, "sample {}; samples count from 0", n);
  int64_t left = n;
  for (size_t k = 0; k < shares_.size(); ++k) {
    const int64_t before = served(left, shares_[k]);
    if (served(left + 1, shares_[k]) > before) return {static_cast<int>(k), before};
    left -= before;
  }
  return {static_cast<int>(shares_.size()), left};
}

std::vector<int64_t> Blend::counts(int64_t n) const {
  std::vector<int64_t> counts;
  int64_t left = n;
  for (uint64_t share : shares_) {
    counts.push_back(served(left, share));
    left -= counts.back();
  }
  counts.push_back(left);
  return counts;
}

}  // namespace triax
