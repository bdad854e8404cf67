#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/vector_math.h"

namespace triax::cpu {

namespace {

/// Column of row t's target, or -1 when it is not on this rank.
template <class Op>
int64_t target_column(const Op& op, int64_t t) {
  const int64_t column = op.targets[t] - op.first_row;
  return op.targets[t] >= 0 && column >= 0 && column < op.valid ? column : -1;
}

template <class T>
TRIAX_INLINE void max_rows_of(const CrossEntropyMax& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* logits = op.logits.as<T>() + t * op.ld;
    float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
    for (int64_t v = 0; v < op.valid; ++v) {
      const float x = value_of(logits[v]);
      maximum = x > maximum ? x : maximum;
    }
    op.maximum[t] = maximum;
  }
}
TRIAX_MULTIVERSION void max_rows(const CrossEntropyMax& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.logits, max_rows_of, op, begin, end);
}

/// Sums of 1024 columns are added in double, so that a large vocabulary loses no digits.
template <class T>
TRIAX_INLINE void sum_rows_of(const CrossEntropySum& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* logits = op.logits.as<T>() + t * op.ld;
    const float maximum = op.maximum[t];
    double total = 0;
    for (int64_t first = 0; first < op.valid; first += 1024) {
      const int64_t last = std::min(op.valid, first + 1024);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t v = first; v < last; ++v) sum += exp_of(value_of(logits[v]) - maximum);
      total += sum;
    }
    op.sum_exp[t] = static_cast<float>(total);
    const int64_t target = target_column(op, t);
    op.target_logit[t] = target >= 0 ? value_of(logits[target]) - maximum : 0;
  }
}
TRIAX_MULTIVERSION void sum_rows(const CrossEntropySum& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.logits, sum_rows_of, op, begin, end);
}

template <class T>
TRIAX_INLINE void backward_rows_of(const CrossEntropyBackward& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* logits = op.logits.as<T>() + t * op.ld;
    T* dlogits = op.dlogits.as<T>() + t * op.ld;
    if (op.targets[t] < 0) {
      std::fill_n(dlogits, op.ld, T{});
      continue;
    }
    const float maximum = op.maximum[t], factor = op.scale / op.sum_exp[t];
    const int64_t target = target_column(op, t);
    const float of_target = target >= 0 ? exp_of(value_of(logits[target]) - maximum) * factor - op.scale : 0;
#pragma omp simd
    for (int64_t v = 0; v < op.valid; ++v)
      dlogits[v] = rounded<T>(exp_of(value_of(logits[v]) - maximum) * factor);
    std::fill(dlogits + op.valid, dlogits + op.ld, T{});
    if (target >= 0) dlogits[target] = rounded<T>(of_target);
  }
}
TRIAX_MULTIVERSION void backward_rows(const CrossEntropyBackward& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.dlogits, backward_rows_of, op, begin, end);
}

}  // namespace

void cross_entropy_max(Device& device, const CrossEntropyMax& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.ld),
                                [&](int64_t begin, int64_t end) { max_rows(op, begin, end); });
}

void cross_entropy_sum(Device& device, const CrossEntropySum& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.ld),
                                [&](int64_t begin, int64_t end) { sum_rows(op, begin, end); });
}

void cross_entropy_backward(Device& device, const CrossEntropyBackward& op) {
  device.threads().parallel_for(op.t, rows_per_task(op.ld),
                                [&](int64_t begin, int64_t end) { backward_rows(op, begin, end); });
}

void cross_entropy_loss(Device&, const CrossEntropyLoss& op) {
  for (int64_t t = 0; t < op.t; ++t)
    if (op.targets[t] >= 0)
      op.sum->add(std::log(static_cast<double>(op.sum_exp[t])) - static_cast<double>(op.target_logit[t]));
}

}  // namespace triax::cpu
