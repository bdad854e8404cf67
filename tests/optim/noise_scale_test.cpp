#include "optim/noise_scale.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/random.h"

namespace triax {
namespace {

double squares(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return sum;
}

// Gradients of sequences drawn from a normal distribution whose mean and covariance are known: the averages
// of many measurements are the squared mean and the covariance's trace, whatever the batches.
TEST(NoiseScale, EstimatesAreUnbiased) {
  constexpr int size = 8;
  std::vector<double> mean(size), deviation(size);
  double trace = 0;
  for (int i = 0; i < size; ++i) {
    mean[i] = 0.1 * (i + 1);
    deviation[i] = 1.0 + 0.2 * i;
    trace += deviation[i] * deviation[i];
  }
  const double truth = squares(mean);
  test::Random random(5);
  for (const auto& [ranks, batch] : {std::pair{2, 3}, std::pair{4, 1}}) {
    constexpr int measurements = 40000;
    double norm_squared = 0, noise = 0;
    for (int n = 0; n < measurements; ++n) {
      std::vector<double> big(size);
      double small_squared = 0;
      for (int r = 0; r < ranks; ++r) {
        std::vector<double> small(size);
        for (int b = 0; b < batch; ++b)
          for (int i = 0; i < size; ++i) small[i] += (mean[i] + deviation[i] * random.normal()) / batch;
        small_squared += squares(small) / ranks;
        for (int i = 0; i < size; ++i) big[i] += small[i] / ranks;
      }
      const NoiseSample sample = noise_sample(small_squared, batch, squares(big), ranks * batch);
      norm_squared += sample.norm_squared / measurements;
      noise += sample.trace / measurements;
    }
    // Standard errors are below 0.5 % of the trace and 1.5 % of the squared mean.
    EXPECT_NEAR(noise / trace, 1, 0.02);
    EXPECT_NEAR(norm_squared / truth, 1, 0.06);
  }
}

TEST(NoiseScale, AveragesEachForItself) {
  NoiseAverages averages;
  EXPECT_FALSE(averages.scale());
  averages.add({2, 6});
  EXPECT_NEAR(*averages.scale(), 3, 1e-12);  // one measurement is its own average
  averages.add({std::nan(""), 1});
  EXPECT_NEAR(*averages.scale(), 3, 1e-12);
  for (int i = 0; i < 1000; ++i) averages.add({i % 2 ? -1.0 : 5.0, 6});
  EXPECT_NEAR(*averages.scale(), 3, 0.2);  // the mean of 5 and -1 is 2
  averages = {};
  averages.add({-1, 6});
  EXPECT_FALSE(averages.scale());
}

}  // namespace
}  // namespace triax
