#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

constexpr int64_t column_strip = 128;  ///< columns that one task sums over all rows
constexpr int64_t column_block = 64;   ///< rows that are summed in float; blocks of them are added in double

/// total[c] += sum over rows [begin, end) of addend(row, first + c).
template <class Addend>
TRIAX_INLINE void add_block(int64_t begin, int64_t end, int64_t first, int64_t columns, const Addend& addend,
                            double* total) {
  float sum[column_strip] = {};
  int64_t row = begin;
  for (; row + 4 <= end; row += 4)
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c)
      sum[c] += (addend(row, first + c) + addend(row + 1, first + c)) +
                (addend(row + 2, first + c) + addend(row + 3, first + c));
  for (; row < end; ++row)
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) sum[c] += addend(row, first + c);
  for (int64_t c = 0; c < columns; ++c) total[c] += sum[c];
}

/// out[first + c] += sum over all rows of addend(row, first + c), for `columns` <= column_strip columns. Rows
/// are added in blocks of a fixed length, so that the bits depend on the shape alone and long columns lose no
/// digits.
template <class Addend>
TRIAX_INLINE void column_sums(int64_t rows, int64_t first, int64_t columns, float* out,
                              const Addend& addend) {
  double total[column_strip] = {};
  for (int64_t row = 0; row < rows; row += column_block)
    add_block(row, std::min(rows, row + column_block), first, columns, addend, total);
  for (int64_t c = 0; c < columns; ++c) out[first + c] += static_cast<float>(total[c]);
}

/// Two sums over the same rows, block by block, so that what they share is in the cache the second time.
template <class Addend, class Addend2>
TRIAX_INLINE void column_sums(int64_t rows, int64_t first, int64_t columns, float* out, const Addend& addend,
                              float* out2, const Addend2& addend2) {
  double total[column_strip] = {}, total2[column_strip] = {};
  for (int64_t row = 0; row < rows; row += column_block) {
    const int64_t end = std::min(rows, row + column_block);
    add_block(row, end, first, columns, addend, total);
    add_block(row, end, first, columns, addend2, total2);
  }
  for (int64_t c = 0; c < columns; ++c) {
    out[first + c] += static_cast<float>(total[c]);
    out2[first + c] += static_cast<float>(total2[c]);
  }
}

}  // namespace triax::cpu
