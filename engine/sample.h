#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triax {

/// How the next token is chosen from the logits.
struct SamplingOptions {
  double temperature = 0.8;  ///< 0: always the likeliest token
  int64_t top_k = 40;        ///< draw from the k likeliest; 0: from all
  double top_p = 1.0;        ///< draw from the fewest likeliest that together have this probability
};

/// A token that may be drawn.
struct Candidate {
  int32_t token;
  double probability;
};

/// What may be drawn, likeliest first (of equals the smaller id first), with probabilities that sum to 1:
/// softmax(logits / temperature), then the top_k likeliest, then the fewest of these that have at least top_p
/// of their sum (Holtzman et al. 2020; the order of transformers' generate()). In double. Temperature 0 gives
/// one candidate. A fault when a logit is not a number.
std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options);

/// The candidate at `uniform` of [0, 1) on the line of their probabilities.
int32_t draw(const std::vector<Candidate>& candidates, double uniform);

}  // namespace triax
