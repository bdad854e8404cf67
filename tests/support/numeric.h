#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace triax::test {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

inline Doubles widen(const Floats& x) {
  return Doubles(x.begin(), x.end());
}

/// n values that a kernel must overwrite: any that is left, or read, shows.
inline Floats untouched(int64_t n) {
  return Floats(static_cast<size_t>(n), std::numeric_limits<float>::quiet_NaN());
}

/// Every element within `tolerance` of the truth, relative to the larger of the element and the truth's root
/// mean square. The failure names the worst element.
inline ::testing::AssertionResult close_to(const Floats& actual, const Doubles& truth, double tolerance) {
  if (actual.size() != truth.size())
    return ::testing::AssertionFailure() << actual.size() << " elements instead of " << truth.size();
  double squares = 0;
  for (double x : truth) squares += x * x;
  const double scale = truth.empty() ? 0 : std::sqrt(squares / static_cast<double>(truth.size()));
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double error = std::fabs(actual[i] - truth[i]);
    const double relative = error == 0 ? 0 : error / std::max(std::fabs(truth[i]), scale);
    if (!(relative <= worst)) {  // NaN counts
      worst = relative;
      at = i;
      if (std::isnan(relative)) break;
    }
  }
  if (worst <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "element " << at << " of " << truth.size() << " is " << actual[at] << " instead of " << truth[at]
         << ", off by " << worst << " > " << tolerance;
}

inline ::testing::AssertionResult same_bits(const Floats& a, const Floats& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  return ::testing::AssertionSuccess();
}

/// The analytic gradient agrees with central differences of `loss` at up to `samples` elements of x, spread
/// evenly. Both are in double, so the step is small and the tolerance tight.
inline ::testing::AssertionResult is_gradient_of(const std::function<double(const Doubles&)>& loss, Doubles x,
                                                 const Doubles& gradient, size_t samples = 40,
                                                 double tolerance = 1e-6) {
  double squares = 0;
  for (double g : gradient) squares += g * g;
  const double scale = std::sqrt(squares / static_cast<double>(gradient.size()));
  const size_t stride = x.size() > samples ? x.size() / samples : 1;
  for (size_t i = 0; i < x.size(); i += stride) {
    const double h = 1e-5, old = x[i];
    x[i] = old + h;
    const double up = loss(x);
    x[i] = old - h;
    const double down = loss(x);
    x[i] = old;
    const double numeric = (up - down) / (2 * h);
    if (!(std::fabs(numeric - gradient[i]) <= tolerance * std::max({std::fabs(gradient[i]), scale, 1e-3})))
      return ::testing::AssertionFailure()
             << "element " << i << ": " << gradient[i] << ", by differences " << numeric;
  }
  return ::testing::AssertionSuccess();
}

/// Sum of w[i] * y[i]: a loss whose gradient with respect to y is w.
inline double weighted(const Doubles& y, const Floats& w) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * w[i];
  return sum;
}

/// base + delta: what an accumulating kernel must leave.
inline Doubles plus(const Floats& base, Doubles delta) {
  for (size_t i = 0; i < delta.size(); ++i) delta[i] += base[i];
  return delta;
}

}  // namespace triax::test
