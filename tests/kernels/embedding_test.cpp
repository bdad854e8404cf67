#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

struct Case {
  int64_t t, h, rows, first_row;
};

// Ids below, inside and beyond this rank's rows, the boundaries among them, many of them equal.
std::vector<int32_t> make_ids(const Case& c) {
  Random random(static_cast<uint64_t>(c.t));
  std::vector<int32_t> ids;
  for (int64_t edge :
       {int64_t{0}, c.first_row - 1, c.first_row, c.first_row + c.rows - 1, c.first_row + c.rows})
    if (edge >= 0) ids.push_back(static_cast<int32_t>(edge));
  while (static_cast<int64_t>(ids.size()) < c.t)
    ids.push_back(static_cast<int32_t>(c.first_row + random.below(2 * c.rows) - c.rows / 2));
  ids.resize(static_cast<size_t>(c.t));
  for (int32_t& id : ids) id = std::max(id, 0);
  return ids;
}

class Embedding : public ::testing::TestWithParam<Case> {};

TEST_P(Embedding, ForwardTakesThisRanksRowsAndZerosElse) {
  const Case c = GetParam();
  Random random(1);
  const Floats table = random.normals(c.rows * c.h);
  const auto ids = make_ids(c);
  auto device = make_cpu_device(2);
  Floats y = untouched(c.t * c.h);
  cpu_kernels().embedding_forward(*device,
                                  {c.t, c.h, c.rows, c.first_row, ids.data(), table.data(), y.data()});
  for (int64_t t = 0; t < c.t; ++t)
    for (int64_t i = 0; i < c.h; ++i) {
      const int64_t row = ids[t] - c.first_row;
      ASSERT_EQ(y[t * c.h + i], row >= 0 && row < c.rows ? table[row * c.h + i] : 0.0f) << "token " << t;
    }
}

TEST_P(Embedding, BackwardAddsInTheOrderOfTokens) {
  const Case c = GetParam();
  Random random(2);
  const Floats before = random.normals(c.rows * c.h), dy = random.normals(c.t * c.h);
  const auto ids = make_ids(c);
  Floats truth = before;  // the order is fixed, so plain floats have the same bits
  for (int64_t t = 0; t < c.t; ++t) {
    const int64_t row = ids[t] - c.first_row;
    if (row < 0 || row >= c.rows) continue;
    for (int64_t i = 0; i < c.h; ++i) truth[row * c.h + i] += dy[t * c.h + i];
  }
  for (int threads : {1, 2, 3}) {
    auto device = make_cpu_device(threads);
    Floats table = before;
    cpu_kernels().embedding_backward(*device,
                                     {c.t, c.h, c.rows, c.first_row, ids.data(), dy.data(), table.data()});
    EXPECT_TRUE(same_bits(table, truth)) << threads << " threads";
  }
}

TEST_P(Embedding, BackwardIsTheGradient) {
  const Case c = GetParam();
  Random random(3);
  const Floats dy = random.normals(c.t * c.h), table = random.normals(c.rows * c.h);
  const auto ids = make_ids(c);
  auto device = make_cpu_device(1);
  Floats dtable(static_cast<size_t>(c.rows * c.h));
  cpu_kernels().embedding_backward(*device,
                                   {c.t, c.h, c.rows, c.first_row, ids.data(), dy.data(), dtable.data()});
  const auto loss = [&](const Doubles& x) {
    double sum = 0;
    for (int64_t t = 0; t < c.t; ++t) {
      const int64_t row = ids[t] - c.first_row;
      if (row < 0 || row >= c.rows) continue;
      for (int64_t i = 0; i < c.h; ++i) sum += x[row * c.h + i] * dy[t * c.h + i];
    }
    return sum;
  };
  EXPECT_TRUE(is_gradient_of(loss, widen(table), widen(dtable), 20));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Embedding,
                         ::testing::Values(Case{1, 1, 3, 0}, Case{40, 7, 5, 0}, Case{40, 7, 5, 10},
                                           Case{200, 300, 11, 22}, Case{33, 129, 256, 256}));

TEST(Position, ForwardAddsAndBackwardSumsOverTheBatch) {
  for (auto [b, s, h] : {std::array<int64_t, 3>{1, 1, 1}, {3, 7, 5}, {4, 64, 130}}) {
    Random random(static_cast<uint64_t>(h));
    const Floats positions = random.normals((s + 2) * h), y0 = random.normals(b * s * h),
                 dy = random.normals(b * s * h);
    const Floats dp0 = random.normals((s + 2) * h);
    Floats y_truth = y0, dp_truth = dp0;
    for (int64_t i = 0; i < b * s * h; ++i) y_truth[i] += positions[i % (s * h)];
    for (int64_t i = 0; i < b * s * h; ++i) dp_truth[i % (s * h)] += dy[i];
    for (int threads : {1, 2, 3}) {
      auto device = make_cpu_device(threads);
      Floats y = y0, dp = dp0;
      cpu_kernels().position_forward(*device, {b * s, s, h, 0, positions.data(), y.data()});
      cpu_kernels().position_backward(*device, {b * s, s, h, 0, dy.data(), dp.data()});
      EXPECT_TRUE(same_bits(y, y_truth));
      EXPECT_TRUE(same_bits(dp, dp_truth));
      // In two parts, cut in the middle of a sequence: additions keep their order.
      const int64_t cut = b * s / 2 + 1;
      y = y0, dp = dp0;
      for (auto [first, t] : {std::pair{int64_t{0}, cut}, std::pair{cut, b * s - cut}}) {
        cpu_kernels().position_forward(*device, {t, s, h, first, positions.data(), y.data() + first * h});
        cpu_kernels().position_backward(*device, {t, s, h, first, dy.data() + first * h, dp.data()});
      }
      EXPECT_TRUE(same_bits(y, y_truth));
      EXPECT_TRUE(same_bits(dp, dp_truth));
    }
  }
}

}  // namespace
}  // namespace triax::test
