#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

constexpr int64_t column_strip = 128;  ///< columns that one task sums over all rows

/// out[n][c] += sum over rows of addend(row, first + c, n) for `columns` <= column_strip columns and N sums.
/// Rows are added in blocks of a fixed length, the blocks in double, so that long columns lose no digits.
template <int N, class Addend>
TRIAX_INLINE void column_sums(int64_t rows, int64_t first, int64_t columns, Addend addend,
                              float* const (&out)[N]) {
  constexpr int64_t block = 64;
  double total[N][column_strip] = {};
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t end = std::min(rows, begin + block);
    float sum[N][column_strip] = {};
    int64_t row = begin;
    for (; row + 4 <= end; row += 4)
      for (int n = 0; n < N; ++n)
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c)
          sum[n][c] += (addend(row, first + c, n) + addend(row + 1, first + c, n)) +
                       (addend(row + 2, first + c, n) + addend(row + 3, first + c, n));
    for (; row < end; ++row)
      for (int n = 0; n < N; ++n)
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c) sum[n][c] += addend(row, first + c, n);
    for (int n = 0; n < N; ++n)
      for (int64_t c = 0; c < columns; ++c) total[n][c] += sum[n][c];
  }
  for (int n = 0; n < N; ++n)
    for (int64_t c = 0; c < columns; ++c) out[n][first + c] += static_cast<float>(total[n][c]);
}

}  // namespace triax::cpu
