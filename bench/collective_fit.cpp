#include "bench/collective_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace triax {

double AlphaBeta::seconds(double rounds, int ranks, int64_t bytes) const {
  return rounds * (alpha + static_cast<double>(bytes) / (ranks * bandwidth));
}

AlphaBeta fit_alpha_beta(const std::vector<CollectiveTime>& times, double rounds_per_rank) {
  check(times.size() >= 2, "{} measurements; a fit of alpha and bandwidth needs two", times.size());
  // seconds = u * alpha + v * inverse; each row divided by its measurement makes the errors relative.
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const CollectiveTime& t : times) {
    const double rounds = rounds_per_rank * (t.ranks - 1);
    const double u = rounds / t.seconds, v = rounds * static_cast<double>(t.bytes) / t.ranks / t.seconds;
    uu += u * u, uv += u * v, vv += v * v, u1 += u, v1 += v;
  }
  const double determinant = uu * vv - uv * uv;
  double alpha = determinant > 0 ? (u1 * vv - v1 * uv) / determinant : u1 / uu;
  double inverse = determinant > 0 ? (v1 * uu - u1 * uv) / determinant : 0;
  // The least of a convex function over a quadrant lies inside it or on an edge.
  if (alpha < 0) alpha = 0, inverse = v1 / vv;
  if (inverse < 0) inverse = 0, alpha = u1 / uu;
  AlphaBeta fit{alpha, inverse > 0 ? 1 / inverse : std::numeric_limits<double>::infinity(), 1};
  for (const CollectiveTime& t : times) {
    const double ratio = fit.seconds(rounds_per_rank * (t.ranks - 1), t.ranks, t.bytes) / t.seconds;
    fit.worst_factor = std::max({fit.worst_factor, ratio, 1 / ratio});
  }
  return fit;
}

}  // namespace triax
