#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

struct Case {
  int64_t t, vocabulary;
  int ranks;
  double spread;  // standard deviation of the logits
};

// Logits of all ranks, cut as the tensor axis cuts them: `ld` columns each, the last ones partly or wholly
// padding.
struct Data {
  int64_t ld;
  std::vector<int32_t> targets;
  Doubles logits;  // [T, vocabulary]
  std::vector<Floats> shards;
  explicit Data(const Case& c) {
    ld = (c.vocabulary + c.ranks - 1) / c.ranks + 3;  // so that the last ranks have padding
    Random random(static_cast<uint64_t>(c.t * 31 + c.vocabulary));
    shards.assign(static_cast<size_t>(c.ranks), untouched(c.t * ld));  // padding is never to be read
    logits.resize(static_cast<size_t>(c.t * c.vocabulary));
    for (int64_t t = 0; t < c.t; ++t) {
      const bool ignored = c.t > 2 && t % 5 == 2;
      targets.push_back(ignored ? -1 : static_cast<int32_t>(random.below(c.vocabulary)));
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        const float x = static_cast<float>(c.spread * random.normal());
        logits[t * c.vocabulary + v] = x;
        shards[v / ld][t * ld + v % ld] = x;
      }
    }
  }
  int64_t valid(const Case& c, int rank) const {
    return std::clamp<int64_t>(c.vocabulary - rank * ld, 0, ld);
  }
};

struct Results {
  Floats maximum, sum_exp, target_logit;
  std::vector<Floats> dlogits;
  ExactSum loss;
};

// All ranks' kernels with the three all-reduces between them.
Results run(const Case& c, const Data& d, float scale, int threads, bool in_place) {
  auto device = make_cpu_device(threads);
  const Kernels& k = cpu_kernels();
  Results out{Floats(c.t, -std::numeric_limits<float>::infinity()), Floats(c.t), Floats(c.t), {}, {}};
  for (int r = 0; r < c.ranks; ++r) {
    Floats part = untouched(c.t);
    k.cross_entropy_max(*device, {c.t, d.valid(c, r), d.ld, d.shards[r].data(), part.data()});
    for (int64_t t = 0; t < c.t; ++t) out.maximum[t] = std::max(out.maximum[t], part[t]);
  }
  for (int r = 0; r < c.ranks; ++r) {
    Floats sum = untouched(c.t), target = untouched(c.t);
    k.cross_entropy_sum(*device, {c.t, d.valid(c, r), d.ld, r * d.ld, d.shards[r].data(), out.maximum.data(),
                                  d.targets.data(), sum.data(), target.data()});
    for (int64_t t = 0; t < c.t; ++t) {
      out.sum_exp[t] += sum[t];
      out.target_logit[t] += target[t];
    }
  }
  for (int r = 0; r < c.ranks; ++r) {
    Floats dlogits = in_place ? d.shards[r] : untouched(c.t * d.ld);
    k.cross_entropy_backward(
        *device, {c.t, d.valid(c, r), d.ld, r * d.ld, in_place ? dlogits.data() : d.shards[r].data(),
                  out.maximum.data(), out.sum_exp.data(), d.targets.data(), scale, dlogits.data()});
    out.dlogits.push_back(dlogits);
  }
  k.cross_entropy_loss(*device,
                       {c.t, out.sum_exp.data(), out.target_logit.data(), d.targets.data(), &out.loss});
  return out;
}

double reference_loss(const Case& c, const std::vector<int32_t>& targets, const Doubles& logits,
                      Doubles* gradient) {
  double loss = 0;
  if (gradient) gradient->assign(logits.size(), 0);
  for (int64_t t = 0; t < c.t; ++t) {
    if (targets[t] < 0) continue;
    const double* row = &logits[t * c.vocabulary];
    const double maximum = *std::max_element(row, row + c.vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < c.vocabulary; ++v) sum += std::exp(row[v] - maximum);
    loss += std::log(sum) + maximum - row[targets[t]];
    if (!gradient) continue;
    for (int64_t v = 0; v < c.vocabulary; ++v)
      (*gradient)[t * c.vocabulary + v] = std::exp(row[v] - maximum) / sum - (v == targets[t] ? 1 : 0);
  }
  return loss;
}

class CrossEntropy : public ::testing::TestWithParam<Case> {};

TEST_P(CrossEntropy, LossAndGradientAreThoseOfDoubles) {
  const Case c = GetParam();
  const Data d(c);
  const float scale = 0.125f;
  const Results got = run(c, d, scale, 1, false);
  Doubles gradient;
  const double loss = reference_loss(c, d.targets, d.logits, &gradient);
  EXPECT_NEAR(got.loss.value(), loss, 1e-6 * std::max(1.0, std::fabs(loss)));
  if (c.t * c.vocabulary < 3000) {
    const auto f = [&](const Doubles& x) { return reference_loss(c, d.targets, x, nullptr); };
    EXPECT_TRUE(is_gradient_of(f, d.logits, gradient, 40, 1e-5));
  }
  for (int64_t t = 0; t < c.t; ++t)
    for (int r = 0; r < c.ranks; ++r)
      for (int64_t i = 0; i < d.ld; ++i) {
        const int64_t v = r * d.ld + i;
        const float x = got.dlogits[r][t * d.ld + i];
        if (v >= c.vocabulary || d.targets[t] < 0) {
          ASSERT_EQ(x, 0.0f) << "row " << t << " column " << v;
        } else {
          ASSERT_NEAR(x, scale * gradient[t * c.vocabulary + v], 3e-7) << "row " << t << " column " << v;
        }
      }
}

TEST_P(CrossEntropy, BitsDependNeitherOnThreadsNorOnThePlaceOfTheResult) {
  const Case c = GetParam();
  const Data d(c);
  const Results one = run(c, d, 1, 1, false);
  for (int threads : {1, 2, 3}) {
    const Results other = run(c, d, 1, threads, true);
    EXPECT_TRUE(same_bits(one.maximum, other.maximum));
    EXPECT_TRUE(same_bits(one.sum_exp, other.sum_exp));
    EXPECT_TRUE(same_bits(one.target_logit, other.target_logit));
    for (int r = 0; r < c.ranks; ++r) EXPECT_TRUE(same_bits(one.dlogits[r], other.dlogits[r]));
    EXPECT_EQ(one.loss.value(), other.loss.value());
  }
}

TEST_P(CrossEntropy, RowsDoNotDependOnEachOther) {
  const Case c = GetParam();
  const Data d(c);
  const Results all = run(c, d, 1, 1, false);
  Case last_case = c;
  last_case.t = 1;
  Data last = d;
  last.targets = {d.targets.back()};
  for (Floats& shard : last.shards) shard.erase(shard.begin(), shard.end() - d.ld);
  const Results one = run(last_case, last, 1, 1, false);
  EXPECT_EQ(all.sum_exp.back(), one.sum_exp[0]);
  for (int r = 0; r < c.ranks; ++r)
    EXPECT_TRUE(same_bits(Floats(all.dlogits[r].end() - d.ld, all.dlogits[r].end()), one.dlogits[r]));
}

// {.., 5 columns on 3 ranks}: each rank has 5, so that the second and third have no valid column at all.
INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropy,
                         ::testing::Values(Case{1, 2, 1, 1}, Case{7, 5, 3, 2}, Case{11, 97, 1, 3},
                                           Case{11, 97, 3, 3}, Case{9, 50, 4, 1e4}, Case{6, 3001, 2, 5},
                                           Case{40, 1200, 1, 1}));

TEST(CrossEntropyLimits, ARankWithoutColumnsHasNoMaximumAndNoSum) {
  auto device = make_cpu_device(1);
  const Kernels& k = cpu_kernels();
  const Floats logits = untouched(6), maximum = {1, 2};
  const std::vector<int32_t> targets = {4, 9};
  Floats found = untouched(2), sum = untouched(2), target = untouched(2), dlogits = untouched(6);
  k.cross_entropy_max(*device, {2, 0, 3, logits.data(), found.data()});
  k.cross_entropy_sum(*device,
                      {2, 0, 3, 4, logits.data(), maximum.data(), targets.data(), sum.data(), target.data()});
  k.cross_entropy_backward(*device, {2, 0, 3, 4, logits.data(), maximum.data(), maximum.data(),
                                     targets.data(), 1, dlogits.data()});
  EXPECT_TRUE(std::isinf(found[0]) && found[0] < 0 && std::isinf(found[1]) && found[1] < 0);
  EXPECT_TRUE(same_bits(sum, Floats(2)));
  EXPECT_TRUE(same_bits(target, Floats(2)));
  EXPECT_TRUE(same_bits(dlogits, Floats(6)));
}

TEST(CrossEntropyLimits, BitsDoNotDependOnWhereBuffersLie) {
  const int64_t n = 1234;
  Random random(8);
  const Floats logits = random.normals(n + 5);
  auto device = make_cpu_device(1);
  const std::vector<int32_t> targets = {7};
  const Floats maximum = {3}, sum = {900};
  Floats sums, first;
  for (int64_t shift = 0; shift < 5; ++shift) {
    Floats at(logits.begin(), logits.begin() + n), found = untouched(1), target = untouched(1),
                                                   d = untouched(n);
    at.insert(at.begin(), shift, 0.0f);
    cpu_kernels().cross_entropy_sum(
        *device, {1, n, n, 0, &at[shift], maximum.data(), targets.data(), found.data(), target.data()});
    cpu_kernels().cross_entropy_backward(
        *device, {1, n, n, 0, &at[shift], maximum.data(), sum.data(), targets.data(), 1, d.data()});
    sums.push_back(found[0]);
    if (shift == 0) first = d;
    EXPECT_EQ(sums[0], found[0]);
    EXPECT_TRUE(same_bits(first, d));
  }
}

TEST(CrossEntropyLimits, TheLossIsAddedToWhatIsThere) {
  auto device = make_cpu_device(1);
  const Floats sum_exp = {2, 3, 7}, target_logit = {0, -1, 0};
  const std::vector<int32_t> targets = {0, 1, -1};
  ExactSum sum;
  sum.add(0.5);
  cpu_kernels().cross_entropy_loss(*device, {3, sum_exp.data(), target_logit.data(), targets.data(), &sum});
  EXPECT_DOUBLE_EQ(sum.value(), 0.5 + std::log(2.0) + std::log(3.0) + 1);
}

}  // namespace
}  // namespace triax::test
