#pragma once

#include <algorithm>
#include <cstdint>

namespace triax::cpu {

/// Rows of `columns` elements that one task takes, by the shape alone: enough work to be worth a hand-over,
/// little enough to stay in a core's cache.
inline int64_t rows_per_task(int64_t columns) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(columns, 1));
}

/// Elements of a task of n that lie in a row, a multiple of `unit`: at most `most`, and so that every thread
/// gets as many tasks as the others and all are done at the same time, unless tasks would then have less
/// than 2^14. Both, 2^14 and `most`, are multiples of `unit`. For results whose bits do not depend on where
/// they are cut.
inline int64_t even_grain(int64_t n, int64_t threads, int64_t most, int64_t unit) {
  constexpr int64_t least = 1 << 14;
  if (n <= least) return least;
  const int64_t tasks = (n + threads * most - 1) / (threads * most) * threads;
  return std::max(least, ((n + tasks - 1) / tasks + unit - 1) / unit * unit);
}

}  // namespace triax::cpu
