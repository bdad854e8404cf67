#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/rope_frequency.h"

namespace triax::cpu {

namespace {

constexpr int64_t max_half = attention_max_head / 2;
constexpr int64_t rope_positions = 16;  // positions of a task

/// Cosine and sine of position * frequency for each pair, stepped from one position to the next in double:
/// after 16 steps still exact to a float.
struct Rotation {
  double cosine[max_half], sine[max_half], step_cosine[max_half], step_sine[max_half];
  float c[max_half], s[max_half];

  Rotation(const Rope& op, int64_t half, int64_t position) {
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = rope_frequency(op.theta, op.stretch, half, i);
      const double angle = static_cast<double>(position) * frequency;
      cosine[i] = std::cos(angle);
      sine[i] = std::sin(angle);
      step_cosine[i] = std::cos(frequency);
      step_sine[i] = std::sin(frequency);
    }
  }

  /// Leaves the present position's values in c and s (negated for the inverse) and steps to the next.
  TRIAX_INLINE void next(int64_t half, bool inverse) {
    const float sign = inverse ? -1.0f : 1.0f;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      c[i] = static_cast<float>(cosine[i]);
      s[i] = sign * static_cast<float>(sine[i]);
      const double cos_next = cosine[i] * step_cosine[i] - sine[i] * step_sine[i];
      sine[i] = sine[i] * step_cosine[i] + cosine[i] * step_sine[i];
      cosine[i] = cos_next;
    }
  }
};

template <class T>
TRIAX_INLINE void rotate_positions_of(const Rope& op, int64_t begin, int64_t end) {
  const int64_t half = op.head_size / 2;
  // From the same multiple wherever the rows begin, so that a position has its bits.
  Rotation rotation(op, half, begin / rope_positions * rope_positions);
  for (int64_t position = begin / rope_positions * rope_positions; position < end; ++position) {
    rotation.next(half, op.inverse);
    if (position < begin) continue;
    for (int64_t b = 0; b < op.b; ++b)
      for (int64_t head = 0; head < op.heads; ++head) {
        T* low = op.x.as<T>() + (b * op.s + position - op.first) * op.row_stride + head * op.head_size;
        T* high = low + half;
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) {
          const float x = value_of(low[i]), y = value_of(high[i]);
          low[i] = rounded<T>(x * rotation.c[i] - y * rotation.s[i]);
          high[i] = rounded<T>(y * rotation.c[i] + x * rotation.s[i]);
        }
      }
  }
}
TRIAX_MULTIVERSION void rotate_positions(const Rope& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.x, rotate_positions_of, op, begin, end);
}

}  // namespace

void rope(Device& device, const Rope& op) {
  check(op.head_size >= 2 && op.head_size % 2 == 0 && op.head_size <= attention_max_head,
        "rotary embedding with a head size of {}: it must be even, 2 to {}", op.head_size,
        attention_max_head);
  const int64_t before = op.first / rope_positions * rope_positions, last = op.first + op.s;
  device.threads().parallel_for(last - before, rope_positions, [&](int64_t begin, int64_t end) {
    rotate_positions(op, std::max(op.first, before + begin), before + end);
  });
}

}  // namespace triax::cpu
