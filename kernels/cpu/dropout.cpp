#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

namespace {

constexpr int64_t tile_blocks = 64;  // Philox blocks, of 4 words each, that are drawn at once

int64_t rows_per_task(int64_t h) {
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(h, 1));
}

/// Word k of block first + j to words[4 * j + k], for `blocks` of them. The four words of a block are made in
/// arrays of their own: with a stride of four between stores the compiler makes no vector code of the rounds.
TRIAX_INLINE void draw(std::array<uint32_t, 2> key, uint64_t domain, uint64_t first, int64_t blocks,
                       uint32_t* words) {
  const auto low = static_cast<uint32_t>(domain), high = static_cast<uint32_t>(domain >> 32);
  uint32_t apart[4][tile_blocks];
#pragma omp simd
  for (int64_t j = 0; j < blocks; ++j) {
    const uint64_t block = first + static_cast<uint64_t>(j);
    uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32), c2 = low, c3 = high;
    philox(c0, c1, c2, c3, key[0], key[1]);
    apart[0][j] = c0, apart[1][j] = c1, apart[2][j] = c2, apart[3][j] = c3;
  }
#pragma omp simd
  for (int64_t j = 0; j < blocks; ++j) {
    words[4 * j] = apart[0][j], words[4 * j + 1] = apart[1][j];
    words[4 * j + 2] = apart[2][j], words[4 * j + 3] = apart[3][j];
  }
}

template <class T>
TRIAX_INLINE void dropout_rows_of(const Dropout& op, int64_t begin, int64_t end) {
  uint32_t words[4 * tile_blocks];
  const uint64_t domain = *op.domain;
  for (int64_t t = begin; t < end; ++t) {
    const T *x = op.x.as<T>() + t * op.h, *bias = op.bias.as<T>();
    T* y = op.y.as<T>() + t * op.h;
    for (int64_t at = 0; at < op.h;) {
      const uint64_t index = op.first + static_cast<uint64_t>(t * op.h + at);
      const int64_t skip = static_cast<int64_t>(index % 4);
      const int64_t n = std::min(op.h - at, 4 * tile_blocks - skip);
      draw(op.key, domain, index / 4, (skip + n + 3) / 4, words);
      const uint32_t* drawn = words + skip;
      const uint32_t threshold = op.threshold;
      const float scale = op.scale;
      if (bias) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i)
          y[at + i] = rounded<T>(
              drawn[i] >= threshold ? (value_of(x[at + i]) + value_of(bias[at + i])) * scale : 0.0F);
      } else {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i)
          y[at + i] = rounded<T>(drawn[i] >= threshold ? value_of(x[at + i]) * scale : 0.0F);
      }
      at += n;
    }
  }
}
TRIAX_MULTIVERSION void dropout_rows(const Dropout& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.y, dropout_rows_of, op, begin, end);
}

}  // namespace

void dropout(Device& device, const Dropout& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h),
                                [&](int64_t begin, int64_t end) { dropout_rows(op, begin, end); });
}

}  // namespace triax::cpu
