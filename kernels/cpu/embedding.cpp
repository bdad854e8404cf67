#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/tasks.h"

namespace triax::cpu {

namespace {

constexpr int64_t strip = 128;  // columns of a task that sums over tokens

template <class X, class Y>
TRIAX_INLINE void add_row_of(int64_t n, const X* x, Y* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = rounded<Y>(value_of(y[i]) + value_of(x[i]));
}
TRIAX_MULTIVERSION void add_row(int64_t n, const float* x, float* y) {
  add_row_of(n, x, y);
}
TRIAX_MULTIVERSION void add_row(int64_t n, const bf16* x, float* y) {
  add_row_of(n, x, y);
}
TRIAX_MULTIVERSION void add_row(int64_t n, const bf16* x, bf16* y) {
  add_row_of(n, x, y);
}

template <class T>
void gather_rows(const EmbeddingForward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = op.ids[t] - op.first_row;
    T* y = op.y.as<T>() + t * op.h;
    if (row >= 0 && row < op.rows)
      std::copy_n(op.table.as<T>() + row * op.h, op.h, y);
    else
      std::fill_n(y, op.h, T{});
  }
}

template <class T>
void scatter_columns(const EmbeddingBackward& op, int64_t begin, int64_t end) {
  for (int64_t t = 0; t < op.t; ++t) {
    const int64_t row = op.ids[t] - op.first_row;
    if (row >= 0 && row < op.rows)
      add_row(end - begin, op.dy.as<T>() + t * op.h + begin, op.dtable + row * op.h + begin);
  }
}

template <class T>
void add_positions(const PositionForward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    add_row(op.h, op.positions.as<T>() + (op.first + t) % op.s * op.h, op.y.as<T>() + t * op.h);
}

template <class T>
void sum_positions(const PositionBackward& op, int64_t begin, int64_t end) {
  for (int64_t s = begin; s < end; ++s)
    for (int64_t t = (s - op.first % op.s + op.s) % op.s; t < op.t; t += op.s)
      add_row(op.h, op.dy.as<T>() + t * op.h, op.dpositions + s * op.h);
}

}  // namespace

void embedding_forward(Device& device, const EmbeddingForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h), [&](int64_t begin, int64_t end) {
    TRIAX_TYPED(op.y, gather_rows, op, begin, end);
  });
}

void embedding_backward(Device& device, const EmbeddingBackward& op) {
  // Tokens may share a row, so tasks own columns: each adds all tokens in order.
  device.threads().parallel_for(
      op.h, strip, [&](int64_t begin, int64_t end) { TRIAX_TYPED(op.dy, scatter_columns, op, begin, end); });
}

void position_forward(Device& device, const PositionForward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.h), [&](int64_t begin, int64_t end) {
    TRIAX_TYPED(op.y, add_positions, op, begin, end);
  });
}

void position_backward(Device& device, const PositionBackward& op) {
  // Tasks own positions: each adds its rows in order.
  const int64_t sequences = (op.t + op.s - 1) / std::max<int64_t>(op.s, 1);
  const int64_t rows = rows_per_task(op.h * std::max<int64_t>(sequences, 1));
  device.threads().parallel_for(
      op.s, rows, [&](int64_t begin, int64_t end) { TRIAX_TYPED(op.dy, sum_positions, op, begin, end); });
}

}  // namespace triax::cpu
