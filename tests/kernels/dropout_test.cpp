#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

constexpr double probability = 0.3;
const RandomStream bits(7, "dropout 1 layers.0.mlp");
const uint64_t domain = bits.domain();

Dropout make(int64_t t, int64_t h, const float* x, const float* bias, float* y, uint64_t first = 0) {
  return {t,
          h,
          x,
          bias,
          y,
          bits.key(),
          &domain,
          first,
          static_cast<uint32_t>(probability * 0x1p32),
          static_cast<float>(1 / (1 - probability))};
}

// The definition, element by element.
Floats truth(const Dropout& op) {
  const float *x = op.x.as<float>(), *bias = op.bias.as<float>();
  Floats y(static_cast<size_t>(op.t * op.h));
  for (int64_t i = 0; i < op.t * op.h; ++i) {
    const float z = bias ? x[i] + bias[i % op.h] : x[i];
    y[static_cast<size_t>(i)] =
        bits.bits(op.first + static_cast<uint64_t>(i)) >= op.threshold ? z * op.scale : 0.0F;
  }
  return y;
}

TEST(Dropout, IsItsDefinitionWhateverTheShapeAndTheFirstElement) {
  for (auto [t, h] : {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {4, 255}, {3, 256}, {7, 770}, {40, 512}})
    for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{1022}, (uint64_t{1} << 34) + 3}) {
      Random random(static_cast<uint64_t>(h));
      const Floats x = random.normals(t * h), bias = random.normals(h);
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()})
        for (int threads : {1, 3}) {
          const auto device = make_cpu_device(threads);
          Floats y(x.size());
          const Dropout op = make(t, h, x.data(), b, y.data(), first);
          cpu_kernels().dropout(*device, op);
          EXPECT_TRUE(same_bits(y, truth(op))) << t << " x " << h << " from " << first;
          Floats in_place = x;
          cpu_kernels().dropout(*device, make(t, h, in_place.data(), b, in_place.data(), first));
          EXPECT_TRUE(same_bits(in_place, y));
        }
    }
}

TEST(Dropout, DropsAsManyAsAskedForAndKeepsTheMean) {
  constexpr int64_t n = 1 << 18;
  const Floats ones(n, 1.0F);
  Floats y(n);
  const auto device = make_cpu_device(1);
  cpu_kernels().dropout(*device, make(n / 64, 64, ones.data(), nullptr, y.data()));
  int64_t dropped = 0, pairs = 0;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    dropped += y[static_cast<size_t>(i)] == 0;
    pairs += i > 0 && y[static_cast<size_t>(i)] == 0 && y[static_cast<size_t>(i - 1)] == 0;
    sum += y[static_cast<size_t>(i)];
  }
  const double sigma = std::sqrt(probability * (1 - probability) / n);
  EXPECT_NEAR(static_cast<double>(dropped) / n, probability, 5 * sigma);
  EXPECT_NEAR(static_cast<double>(pairs) / n, probability * probability,
              5 * sigma);  // neighbours on their own
  EXPECT_NEAR(sum / n, 1.0, 10 * sigma);
}

}  // namespace
}  // namespace triax::test
