#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

namespace {

constexpr int64_t strip = 128;  // columns of a task that sums over tokens

int64_t rows_per_task(int64_t h) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(h, 1));
}

TRIAX_MULTIVERSION void add_row(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

void embedding_forward(Device& device, const EmbeddingForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = op.ids[t] - op.first_row;
      float* y = op.y + t * op.h;
      if (row >= 0 && row < op.rows)
        std::copy_n(op.table + row * op.h, op.h, y);
      else
        std::fill_n(y, op.h, 0.0f);
    }
  });
}

void embedding_backward(Device& device, const EmbeddingBackward& op) {
  // Tokens may share a row, so tasks own columns: each adds all tokens in order.
  device.threads().parallel_for(op.h, strip, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < op.t; ++t) {
      const int64_t row = op.ids[t] - op.first_row;
      if (row >= 0 && row < op.rows)
        add_row(end - begin, op.dy + t * op.h + begin, op.dtable + row * op.h + begin);
    }
  });
}

void position_forward(Device& device, const PositionForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      add_row(op.h, op.positions + (op.first + t) % op.s * op.h, op.y + t * op.h);
  });
}

void position_backward(Device& device, const PositionBackward& op) {
  // Tasks own positions: each adds its rows in order.
  const int64_t sequences = (op.t + op.s - 1) / std::max<int64_t>(op.s, 1);
  const int64_t rows = rows_per_task(op.h * std::max<int64_t>(sequences, 1));
  device.threads().parallel_for(op.s, rows, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      for (int64_t t = (s - op.first % op.s + op.s) % op.s; t < op.t; t += op.s)
        add_row(op.h, op.dy + t * op.h, op.dpositions + s * op.h);
  });
}

}  // namespace triax::cpu
