#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

Floats run(int64_t t, int64_t f, const Floats& dy, Floats dbias, int threads) {
  auto device = make_cpu_device(threads);
  cpu_kernels().bias_backward(*device, {t, f, dy.data(), dbias.data()});
  return dbias;
}

TEST(BiasBackward, AddsTheSumOverTokens) {
  for (int64_t t : {1, 3, 64, 67, 1000})
    for (int64_t f : {1, 7, 128, 300}) {
      Random random(static_cast<uint64_t>(t + f));
      const Floats dy = random.normals(t * f), before = random.normals(f);
      Doubles sum(f);
      for (int64_t i = 0; i < t * f; ++i) sum[i % f] += dy[i];
      const Floats one = run(t, f, dy, before, 1);
      EXPECT_TRUE(close_to(one, plus(before, sum), 5e-6)) << t << " x " << f;
      for (int threads : {2, 3}) EXPECT_TRUE(same_bits(one, run(t, f, dy, before, threads)));
      const auto loss = [&](const Doubles& bias) {  // sum of dy * (u + bias) for any u
        double total = 0;
        for (int64_t i = 0; i < t * f; ++i) total += dy[i] * bias[i % f];
        return total;
      };
      EXPECT_TRUE(is_gradient_of(loss, Doubles(f), sum, 5));
    }
}

// In plain float, 100,000 equal addends come out 1e-4 wrong.
TEST(BiasBackward, KeepsDigitsInLongSums) {
  const int64_t t = 100000;
  const Floats sum = run(t, 1, Floats(t, 0.1f), {0.0f}, 1);
  EXPECT_NEAR(sum[0], 0.1f * static_cast<double>(t), 0.01);
}

}  // namespace
}  // namespace triax::test
