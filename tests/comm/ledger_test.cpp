#include "comm/ledger.h"

#include <gtest/gtest.h>

#include "comm/communicator.h"

namespace triax {
namespace {

// A ledger of all-reduces in a group of `size`.
Ledger of(int size, int64_t elements, int calls) {
  const auto group = make_null_communicator(0, size, {}, "group");
  std::vector<float> data(static_cast<size_t>(elements));
  for (int i = 0; i < calls; ++i) {
    const Tensor t = Tensor::of(data.data(), {elements});
    group->all_reduce(t, t, ReduceOp::sum).wait();
  }
  return group->recorder().ledger();
}

TEST(Ledger, DifferencesAndSumsOfThirdsAreExact) {
  const Ledger one = of(3, 5, 1), seven = of(3, 5, 7);  // 2 * 2/3 * 20 bytes each
  Ledger sum;
  for (int i = 0; i < 6; ++i) add(sum, one);
  EXPECT_EQ(disagreements(difference(seven, one), sum), std::vector<std::string>());
  EXPECT_TRUE(difference(seven, seven).empty());
}

TEST(Ledger, NamesWhatIsMissingAndWhatIsTooMuch) {
  const Ledger planned = of(2, 4, 3);
  const auto fewer = disagreements(planned, of(2, 4, 2));
  ASSERT_EQ(fewer.size(), 1u);
  EXPECT_EQ(fewer[0], "group all_reduce: 3 calls, 48.00 bytes planned; 2 calls, 32.00 bytes counted");
  EXPECT_EQ(disagreements(planned, {}).size(), 1u);
  EXPECT_EQ(disagreements({}, planned).size(), 1u);
  EXPECT_EQ(disagreements(planned, of(2, 6, 2)).size(), 1u);  // the same bytes in fewer calls
}

}  // namespace
}  // namespace triax
