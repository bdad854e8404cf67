#include "bench/collective_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "bench/collectives.h"
#include "bench/tensor_parallel.h"

namespace triax {
namespace {

std::vector<CollectiveTime> ring(double alpha, double bandwidth) {
  std::vector<CollectiveTime> times;
  for (const int n : {2, 3, 8})
    for (int64_t bytes = 8; bytes <= 1 << 26; bytes *= 8)
      times.push_back({n, bytes, 2.0 * (n - 1) * (alpha + static_cast<double>(bytes) / (n * bandwidth))});
  return times;
}

TEST(CollectiveFit, FindsWhatMadeTheTimes) {
  const AlphaBeta fit = fit_alpha_beta(ring(3e-6, 12e9), 2);
  EXPECT_NEAR(fit.alpha, 3e-6, 1e-12);
  EXPECT_NEAR(fit.bandwidth, 12e9, 1e3);
  EXPECT_NEAR(fit.worst_factor, 1, 1e-9);
}

TEST(CollectiveFit, ErrorsAreRelative) {
  std::vector<CollectiveTime> times = ring(3e-6, 12e9);
  for (size_t i = 0; i < times.size(); ++i) times[i].seconds *= i % 2 ? 1.1 : 0.9;
  const AlphaBeta fit = fit_alpha_beta(times, 2);
  EXPECT_NEAR(fit.alpha / 3e-6, 1, 0.1);
  EXPECT_NEAR(fit.bandwidth / 12e9, 1, 0.1);
  EXPECT_LT(fit.worst_factor, 1.3);
}

TEST(CollectiveFit, NeitherIsNegative) {
  // Time per byte alone, and a constant alone.
  const AlphaBeta no_alpha = fit_alpha_beta({{2, 1000, 0.9e-6}, {2, 2000, 2.2e-6}}, 1);
  EXPECT_EQ(no_alpha.alpha, 0);
  EXPECT_GT(no_alpha.bandwidth, 0);
  const AlphaBeta no_bandwidth = fit_alpha_beta({{2, 1000, 2e-6}, {2, 2000, 1e-6}}, 1);
  EXPECT_GT(no_bandwidth.alpha, 0);
  EXPECT_TRUE(std::isinf(no_bandwidth.bandwidth));
}

TEST(TensorParallelBench, PredictionIsRingBytesOverFlops) {
  // An MLP's forward on t ranks: 16 T h^2 / t FLOPs, 2(t-1)/t T h beta bytes.
  const double flops = 2e11, bandwidth = 5e9, tokens = 1000, h = 512, t = 4;
  const double expected = (2 * (t - 1) / t * tokens * h * 4 / bandwidth) / (16 * tokens * h * h / t / flops);
  EXPECT_NEAR(predicted_ratio(4, 512, 4, flops, bandwidth) / expected, 1, 1e-12);
}

TEST(TensorParallelBench, RunsOnThreads) {
  std::ostringstream out;
  bench_tensor_parallel(out, {.ranks = 3, .hidden = {48}, .tokens = {8, 16}, .seconds = 0.001, .json = true});
  EXPECT_NE(out.str().find("\"predicted\""), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("\"tensor\": 3"), std::string::npos) << out.str();
}

TEST(CollectivesBench, RunsOnThreads) {
  std::ostringstream out;
  bench_collectives(out, {.ranks = 3, .max_bytes = 4096, .seconds = 0.001});
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "send_recv", "alpha"})
    EXPECT_NE(out.str().find(name), std::string::npos) << out.str();
}

}  // namespace
}  // namespace triax
