#include "parallel/layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace triax {
namespace {

TEST(Layout, IntersectAndEmpty) {
  const Box a{{0, 0}, {4, 6}}, b{{2, 5}, {4, 6}}, c{{4, 0}, {1, 1}};
  EXPECT_EQ(intersect(a, b), (Box{{2, 5}, {2, 1}}));
  EXPECT_TRUE(empty(intersect(a, c)));
  EXPECT_EQ(to_string(b), "[2:6, 5:11]");
}

// Every range of every box: the boxes are in order, contiguous in the box, and cover the range exactly.
TEST(Layout, RangesBecomeFewContiguousBoxes) {
  for (const Box& box : {Box{{3, 5}, {4, 6}}, Box{{7}, {9}}, Box{{1, 2, 3}, {2, 3, 4}}}) {
    for (int64_t begin = 0; begin <= box.numel(); ++begin) {
      for (int64_t end = begin; end <= box.numel(); ++end) {
        const auto boxes = boxes_of_range(box, begin, end);
        int64_t at = begin;
        for (const Box& part : boxes) {
          EXPECT_FALSE(empty(part));
          EXPECT_EQ(index_within(box, part), at);
          at += part.numel();
          Box last = part;  // contiguous: the last element is numel - 1 behind the first
          for (int i = 0; i < part.extent.rank(); ++i) last.offset[i] += part.extent[i] - 1;
          EXPECT_EQ(index_within(box, last), at - 1);
        }
        EXPECT_EQ(at, end);
        EXPECT_LE(boxes.size(), static_cast<size_t>(2 * box.extent.rank() - 1));
      }
    }
  }
}

TEST(Layout, CopyBoxMovesTheCommonPart) {
  std::mt19937 random(1);
  const Shape global{7, 9};
  std::vector<float> all(63);
  std::iota(all.begin(), all.end(), 1.0F);
  for (int trial = 0; trial < 200; ++trial) {
    auto random_box = [&] {
      Box box{{0, 0}, {0, 0}};
      for (int i = 0; i < 2; ++i) {
        box.offset[i] = static_cast<int64_t>(random() % global[i]);
        box.extent[i] = 1 + static_cast<int64_t>(random() % (global[i] - box.offset[i]));
      }
      return box;
    };
    const Box from = random_box(), to = random_box();
    std::vector<float> source(static_cast<size_t>(from.numel()), -1),
        target(static_cast<size_t>(to.numel()), -2);
    EXPECT_EQ(copy_box(whole(global), all.data(), from, source.data()), from.numel());
    EXPECT_EQ(copy_box(from, source.data(), to, target.data()), intersect(from, to).numel());
    for (int64_t r = 0; r < to.extent[0]; ++r)
      for (int64_t c = 0; c < to.extent[1]; ++c) {
        const int64_t row = to.offset[0] + r, column = to.offset[1] + c;
        const bool common = row >= from.offset[0] && row < from.offset[0] + from.extent[0] &&
                            column >= from.offset[1] && column < from.offset[1] + from.extent[1];
        EXPECT_EQ(target[static_cast<size_t>(r * to.extent[1] + c)],
                  common ? static_cast<float>(row * 9 + column + 1) : -2.0F);
      }
  }
}

}  // namespace
}  // namespace triax
