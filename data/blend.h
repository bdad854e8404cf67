#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triax {

/// Which source of a weighted blend serves the n-th sample of a job.
///
/// The rule, exact and computable at any n: the first source has served floor(n p + 1/2) of the first n
/// samples, p being its share of the weights; of the samples that are left the second source has served
/// floor(r q + 1/2), q being its share of the weights that are left; and so on, the last source takes the
/// rest. Shares are fixed-point numbers of 64 bits. Every count grows by at most one per sample, the counts
/// sum to n, and each stays within (k + 1) / 2 of n times the weight for the k-th source (from 0).
class Blend {
 public:
  struct Draw {
    int source;
    int64_t index;  ///< how many samples this source has served before
    bool operator==(const Draw&) const = default;
  };

  /// Weights are relative. A usage error when one is not a positive finite number, or there are none.
  explicit Blend(std::span<const double> weights);

  /// The source of sample n (from 0).
  Draw draw(int64_t n) const;
  /// How many of the samples 0 .. n-1 each source serves.
  std::vector<int64_t> counts(int64_t n) const;

 private:
  std::vector<uint64_t> shares_;  // of what is left, in units of 2^-64; none for the last source
};

}  // namespace triax
