#pragma once

#include <cstdint>
#include <vector>

namespace triax {

/// One measured collective.
struct CollectiveTime {
  int ranks = 0;
  int64_t bytes = 0;  ///< S: of the whole tensor (all_gather: gathered; reduce_scatter: before scattering)
  double seconds = 0;
};

/// The alpha-beta model of a ring: rounds(n) messages of S/n bytes, one behind the other,
///   seconds = rounds * (alpha + S / (n * bandwidth)),
/// with rounds = 2(n-1) for an all-reduce, n-1 for all_gather and reduce_scatter (Thakur, Rabenseifner and
/// Gropp 2005, "Optimization of Collective Communication Operations in MPICH").
struct AlphaBeta {
  double alpha = 0;         ///< seconds a message
  double bandwidth = 0;     ///< bytes a second; infinity where the sizes measured don't show one
  double worst_factor = 1;  ///< largest of prediction/measurement and its inverse over the points
  double seconds(double rounds, int ranks, int64_t bytes) const;
};

/// Least squares over relative errors, so that small messages count as much as large ones; neither of the two
/// is below zero. `rounds_per_rank`: 2 for an all-reduce, 1 for the others. Needs at least two points.
AlphaBeta fit_alpha_beta(const std::vector<CollectiveTime>& times, double rounds_per_rank);

}  // namespace triax
