#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

struct Case {
  int64_t b, s, heads, d, stride;
  float theta;
  RopeStretch stretch{};
};

// transformers' three cases of rope_type llama3, by wavelength; linear without a context.
double stretched(const RopeStretch& s, double frequency) {
  const double wavelength = 2 * M_PI / frequency;
  if (s.context == 0 || wavelength > s.context / s.low) return frequency / s.factor;
  if (wavelength < s.context / s.high) return frequency;
  const double smooth = (s.context / wavelength - s.low) / (s.high - s.low);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

// Hugging Face's LLaMA: x * cos + rotate_half(x) * sin, cos and sin repeated for both halves.
Doubles reference(const Case& c, Doubles x, bool inverse) {
  const int64_t half = c.d / 2;
  for (int64_t t = 0; t < c.b * c.s; ++t)
    for (int64_t head = 0; head < c.heads; ++head) {
      double* row = &x[t * c.stride + head * c.d];
      const Doubles old(row, row + c.d);
      for (int64_t i = 0; i < c.d; ++i) {
        const double frequency =
            stretched(c.stretch, 1 / std::pow(static_cast<double>(c.theta), 2.0 * (i % half) / c.d));
        const double angle = (t % c.s) * frequency * (inverse ? -1 : 1);
        const double rotated = i < half ? -old[i + half] : old[i - half];
        row[i] = old[i] * std::cos(angle) + rotated * std::sin(angle);
      }
    }
  return x;
}

Floats run(const Case& c, Floats x, bool inverse, int threads) {
  auto device = make_cpu_device(threads);
  cpu_kernels().rope(*device, {c.b, c.s, c.heads, c.d, c.stride, x.data(), c.theta, inverse, 0, c.stretch});
  return x;
}

class RotaryEmbedding : public ::testing::TestWithParam<Case> {};

TEST_P(RotaryEmbedding, RotatesTheFirstHeadsOfEachRow) {
  const Case c = GetParam();
  Random random(5);
  const Floats x = random.normals(c.b * c.s * c.stride);
  for (bool inverse : {false, true}) {
    const Floats got = run(c, x, inverse, 1);
    EXPECT_TRUE(close_to(got, reference(c, widen(x), inverse), 5e-7));
    for (int threads : {2, 3}) EXPECT_TRUE(same_bits(got, run(c, x, inverse, threads)));
    for (int64_t t = 0; t < c.b * c.s; ++t)
      for (int64_t i = c.heads * c.d; i < c.stride; ++i)
        ASSERT_EQ(got[t * c.stride + i], x[t * c.stride + i]);
  }
}

// A sequence's rows are the same alone, in a batch, and in a shorter sequence.
TEST_P(RotaryEmbedding, RowsDoNotDependOnEachOther) {
  const Case c = GetParam();
  Random random(6);
  const Floats x = random.normals(c.b * c.s * c.stride), got = run(c, x, false, 1);
  Case small = c;
  small.b = 1;
  small.s = (c.s + 1) / 2;
  const int64_t at = (c.b - 1) * c.s * c.stride, n = small.s * c.stride;
  const Floats part = run(small, Floats(x.begin() + at, x.begin() + at + n), false, 1);
  EXPECT_TRUE(same_bits(part, Floats(got.begin() + at, got.begin() + at + n)));
}

// Rows of a sequence that begin in its middle: position by position the bits of the whole.
TEST_P(RotaryEmbedding, RowsMayBeginAtAnyPosition) {
  const Case c = GetParam();
  if (c.b != 1) return;
  Random random(8);
  const Floats x = random.normals(c.s * c.stride), got = run(c, x, false, 1);
  const auto device = make_cpu_device(2);
  for (const int64_t step : {int64_t{1}, int64_t{21}}) {
    Floats parts = x;
    for (int64_t first = 0; first < c.s; first += step)
      cpu_kernels().rope(*device, {1, std::min(step, c.s - first), c.heads, c.d, c.stride,
                                   parts.data() + first * c.stride, c.theta, false, first, c.stretch});
    EXPECT_TRUE(same_bits(parts, got));
  }
}

TEST_P(RotaryEmbedding, TheInverseIsTheGradient) {
  const Case c = GetParam();
  if (c.b * c.s * c.stride > 5000) return;
  Random random(7);
  const Floats x = random.normals(c.b * c.s * c.stride), dy = random.normals(c.b * c.s * c.stride);
  const Floats dx = run(c, dy, true, 1);
  const auto loss = [&](const Doubles& at) { return weighted(reference(c, at, false), dy); };
  EXPECT_TRUE(is_gradient_of(loss, widen(x), widen(dx), 40, 3e-6));
}

INSTANTIATE_TEST_SUITE_P(Shapes, RotaryEmbedding,
                         ::testing::Values(Case{1, 1, 1, 2, 2, 1e4f}, Case{2, 7, 3, 6, 30, 1e4f},
                                           Case{2, 33, 2, 10, 25, 5e5f}, Case{1, 600, 2, 64, 192, 1e4f},
                                           Case{1, 2000, 1, 256, 256, 1e6f},
                                           Case{1, 600, 2, 64, 192, 1e4f, {2.5}},
                                           Case{1, 600, 2, 64, 192, 5e5f, {8, 8192, 1, 4}}));

}  // namespace
}  // namespace triax::test
