#include "engine/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace triax {

std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options) {
  for (size_t i = 0; i < logits.size(); ++i)
    check(!std::isnan(logits[i]),
          "the logit of token {} is not a number: the weights are damaged, or diverged in training", i);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  check(!order.empty(), "no token to choose from");
  if (options.temperature <= 0) return {{*std::min_element(order.begin(), order.end(), likelier), 1.0}};
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    std::partial_sort(order.begin(), order.begin() + options.top_k, order.end(), likelier);
    order.resize(static_cast<size_t>(options.top_k));
  } else {
    std::sort(order.begin(), order.end(), likelier);
  }
  const double most = logits[static_cast<size_t>(order[0])];
  std::vector<Candidate> list;
  double sum = 0;
  for (const int32_t token : order) {
    const double weight = std::exp((logits[static_cast<size_t>(token)] - most) / options.temperature);
    list.push_back({token, weight});
    sum += weight;
  }
  double kept = 0;
  size_t count = 0;
  while (count < list.size() && (count == 0 || kept < options.top_p * sum)) kept += list[count++].probability;
  list.resize(count);
  for (Candidate& candidate : list) candidate.probability /= kept;
  return list;
}

int32_t draw(const std::vector<Candidate>& candidates, double uniform) {
  for (const Candidate& candidate : candidates)
    if ((uniform -= candidate.probability) < 0) return candidate.token;
  return candidates.back().token;  // rounding has left a little of the line
}

}  // namespace triax
