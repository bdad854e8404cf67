#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"

namespace triax {
namespace {

struct State {
  std::vector<float> weight, grad, exp_avg, exp_avg_sq;
  UpdateScalars scalars{};
};

State random_state(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  State s;
  for (size_t i = 0; i < n; ++i) {
    s.weight.push_back(normal(random));
    s.grad.push_back(0.1f * normal(random));
    s.exp_avg.push_back(0.1f * normal(random));
    s.exp_avg_sq.push_back(0.01f * std::pow(normal(random), 2.0f));
  }
  return s;
}

AdamW operation(State& s, size_t begin, size_t n, int step) {
  s.scalars = {.lr = 3e-3f,
               .bias_correction1 = static_cast<float>(1 - std::pow(0.9, step)),
               .bias_correction2 = static_cast<float>(1 - std::pow(0.95, step)),
               .grad_scale = 0.7f};
  return {.n = static_cast<int64_t>(n),
          .weight = s.weight.data() + begin,
          .grad = s.grad.data() + begin,
          .exp_avg = s.exp_avg.data() + begin,
          .exp_avg_sq = s.exp_avg_sq.data() + begin,
          .beta1 = 0.9f,
          .beta2 = 0.95f,
          .epsilon = 1e-8f,
          .weight_decay = 0.1f,
          .scalars = &s.scalars};
}

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

TEST(AdamW, MatchesTorchInDouble) {
  auto device = make_cpu_device(2);
  const size_t n = 1003;
  State s = random_state(n, 1);
  s.exp_avg.assign(n, 0);
  s.exp_avg_sq.assign(n, 0);
  s.grad[5] = 0;  // a parameter without a gradient: only decay
  std::vector<double> weight(s.weight.begin(), s.weight.end()), m(n, 0), v(n, 0);
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (int step = 1; step <= 10; ++step) {
    cpu::adamw(*device, operation(s, 0, n, step));
    // torch.optim.AdamW, _single_tensor_adamw, line by line.
    for (size_t i = 0; i < n; ++i) {
      const double g = static_cast<double>(s.grad[i]) * static_cast<double>(0.7f);
      weight[i] *= 1 - 3e-3 * 0.1;
      m[i] += (g - m[i]) * (1 - 0.9);
      v[i] = v[i] * 0.95 + g * g * (1 - 0.95);
      const double denominator = std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.95, step)) + 1e-8;
      weight[i] -= 3e-3 / (1 - std::pow(0.9, step)) * m[i] / denominator;
    }
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(s.weight[i], weight[i], 6e-8 * (step + 1) * (std::abs(weight[i]) + 0.03))
          << "step " << step << " at " << i;
      ASSERT_NEAR(s.exp_avg[i], m[i], 2e-7 * (std::abs(m[i]) + 0.1));
      ASSERT_NEAR(s.exp_avg_sq[i], v[i], 2e-6 * v[i]);
    }
    for (size_t i = 0; i < n; ++i)
      if (i != 5) s.grad[i] = 0.1f * normal(random);
  }
}

TEST(AdamW, BitsDependNeitherOnThreadsNorOnPlace) {
  const size_t n = 150001;
  auto one = make_cpu_device(1);
  State whole = random_state(n, 2);
  cpu::adamw(*one, operation(whole, 0, n, 3));
  std::mt19937 random(4);
  for (const int threads : {1, 2, 3}) {
    auto device = make_cpu_device(threads);
    for (const size_t longest : {40, 5000, 100000}) {
      State parts = random_state(n, 2);
      for (size_t begin = 0; begin < n;) {
        const size_t count = std::min<size_t>(n - begin, 1 + random() % longest);
        cpu::adamw(*device, operation(parts, begin, count, 3));
        begin += count;
      }
      ASSERT_TRUE(same_bits(parts.weight, whole.weight)) << threads << " threads, pieces up to " << longest;
      ASSERT_TRUE(same_bits(parts.exp_avg, whole.exp_avg));
      ASSERT_TRUE(same_bits(parts.exp_avg_sq, whole.exp_avg_sq));
    }
  }
}

TEST(AdamW, LeavesTheNeighboursAlone) {
  auto device = make_cpu_device(1);
  const State before = random_state(100, 3);
  State s = before;
  cpu::adamw(*device, operation(s, 10, 21, 1));
  for (const size_t i : {9, 31}) {
    EXPECT_EQ(s.weight[i], before.weight[i]);
    EXPECT_EQ(s.exp_avg[i], before.exp_avg[i]);
    EXPECT_EQ(s.exp_avg_sq[i], before.exp_avg_sq[i]);
  }
  for (const size_t i : {10, 30}) EXPECT_NE(s.weight[i], before.weight[i]);
  EXPECT_TRUE(same_bits(s.grad, before.grad));
}

TEST(AdamW, RoundsTheNewWeights) {
  const size_t n = 150001;
  const auto device = make_cpu_device(2);
  State plain = random_state(n, 2), both = plain;
  std::vector<bf16> rounded(n + 2), before = rounded;
  cpu::adamw(*device, operation(plain, 0, n, 3));
  AdamW op = operation(both, 0, n, 3);
  op.rounded = rounded.data() + 1;
  cpu::adamw(*device, op);
  EXPECT_TRUE(same_bits(both.weight, plain.weight));
  EXPECT_TRUE(same_bits(both.exp_avg_sq, plain.exp_avg_sq));
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(rounded[i + 1].bits, round_bf16(both.weight[i]).bits) << i;
  EXPECT_EQ(rounded.front().bits, before.front().bits);
  EXPECT_EQ(rounded.back().bits, before.back().bits);
  both.scalars.skip = 1;
  rounded = before;
  cpu::adamw(*device, op);
  for (const bf16 x : rounded) ASSERT_EQ(x.bits, 0) << "a skipped update has rounded";
}

TEST(AdamW, SkipsWithoutATrace) {
  auto device = make_cpu_device(1);
  const State before = random_state(100, 3);
  State s = before;
  const AdamW op = operation(s, 0, 100, 1);
  s.scalars.skip = 1;
  cpu::adamw(*device, op);
  EXPECT_TRUE(same_bits(s.weight, before.weight));
  EXPECT_TRUE(same_bits(s.exp_avg, before.exp_avg));
  EXPECT_TRUE(same_bits(s.exp_avg_sq, before.exp_avg_sq));
}

UpdateScalars decided(double squared_norm, double loss, double max_norm, int32_t skip = 0) {
  ExactSum norm_sum, loss_sum;
  norm_sum.add(squared_norm);
  loss_sum.add(loss);
  UpdateScalars s{.lr = 2, .bias_correction1 = 3, .bias_correction2 = 4, .grad_scale = 5, .skip = skip};
  auto device = make_cpu_device(1);
  cpu_kernels().decide_update(*device, {&norm_sum, &loss_sum, max_norm, &s});
  EXPECT_EQ(s.lr, 2);
  EXPECT_EQ(s.bias_correction1, 3);
  EXPECT_EQ(s.bias_correction2, 4);
  return s;
}

TEST(DecideUpdate, ClipsAsTorchDoes) {
  EXPECT_EQ(decided(0.25, 1, 1.0).grad_scale, 1.0F);
  EXPECT_EQ(decided(16, 1, 1.0).grad_scale, static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(decided(16, 1, 0.0).grad_scale, 1.0F);  // no clipping
  EXPECT_EQ(decided(16, 1, 1.0).skip, 0);
}

TEST(DecideUpdate, SkipsWhatIsNotFinite) {
  EXPECT_EQ(decided(NAN, 1, 1.0).skip, 1);
  EXPECT_EQ(decided(1, NAN, 1.0).skip, 1);
  EXPECT_EQ(decided(1, -INFINITY, 0.0).skip, 1);
}

// Updates that were enqueued after a step that is not finite wait for the host's word.
TEST(DecideUpdate, GoesOnSkippingUntilTheHostClearsIt) {
  EXPECT_EQ(decided(16, 1, 1.0, 1).skip, 1);
}

}  // namespace
}  // namespace triax
