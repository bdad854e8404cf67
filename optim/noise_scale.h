#pragma once

#include <cstdint>
#include <optional>

namespace triax {

/// One measurement of the gradient noise scale (McCandlish, Kaplan, Amodei et al., "An Empirical Model of
/// Large-Batch Training", arXiv:1812.06162, appendix A.1): unbiased estimates, from the squared norms of
/// gradients of a small and a large batch of the same step, of
///
///     |G|^2 = (B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small)      the true gradient's squared
///     norm S     = (|G_small|^2 - |G_big|^2) / (1 / B_small - 1 / B_big)            the trace of a
///     sequence's covariance
struct NoiseSample {
  double norm_squared = 0;  ///< |G|^2; may be negative, being an unbiased estimate of a small number
  double trace = 0;         ///< S, for a batch of one sequence
};

/// `small_squared`: mean over the data ranks of the squared norm of the mean gradient of a rank's own
/// `small_batch` sequences; `big_squared`: of the mean gradient of all `big_batch` > `small_batch`.
NoiseSample noise_sample(double small_squared, double small_batch, double big_squared, double big_batch);

/// Exponential averages of the two, each for itself, as the ratio of single measurements is biased and noisy.
/// They are of no batch size and no grid, so that they go on when a job resumes with others.
struct NoiseAverages {
  static constexpr double decay = 0.95;  ///< per measurement: a window of some 20

  double norm_squared = 0, trace = 0;
  double weight = 0;  ///< of what has been averaged; 0: nothing, towards 1

  /// Takes a measurement; one that is not finite is left out.
  void add(const NoiseSample& sample);
  /// B_simple = S / |G|^2 in sequences: the critical batch, about where larger batches begin to save few
  /// steps. None before a measurement and while the average of |G|^2 is not positive.
  std::optional<double> scale() const;
};

}  // namespace triax
