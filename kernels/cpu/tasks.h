#pragma once

#include <algorithm>
#include <cstdint>

namespace triax::cpu {

/// Rows of `columns` elements that one task takes, by the shape alone: enough work to be worth a hand-over,
/// little enough to stay in a core's cache.
inline int64_t rows_per_task(int64_t columns) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(columns, 1));
}

}  // namespace triax::cpu
