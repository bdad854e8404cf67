#include "core/error.h"

#include <gtest/gtest.h>

#include <regex>

#include "core/tensor.h"

namespace triax {
namespace {

TEST(Error, KnowsItsPlaceAndKind) {
  try {
    fail("{} of {} wheels", 3, 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "3 of 4 wheels");
    EXPECT_EQ(error.kind(), ErrorKind::fault);
    EXPECT_TRUE(std::regex_match(error.place(), std::regex("core/error_test\\.cpp:[0-9]+"))) << error.place();
  }
  try {
    fail_usage("try {}", "again");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

TEST(Error, CheckThrowsOnlyWhenBroken) {
  EXPECT_NO_THROW(check(true, "fine"));
  EXPECT_THROW(check(false, "{}", "not fine"), Error);
}

TEST(Tensor, RefusesWrongTypesRowsAndShapes) {
  std::array<float, 6> data{0, 1, 2, 3, 4, 5};
  const Tensor t = Tensor::of(data.data(), {3, 2});
  EXPECT_EQ(t.rows(1, 2).f32()[0], 2.0F);
  EXPECT_EQ(t.rows(3, 0).numel(), 0);
  EXPECT_EQ(t.reshape({6})[0], 6);
  EXPECT_THROW(t.i32(), Error);
  EXPECT_THROW(t.rows(2, 2), Error);
  EXPECT_THROW(t.rows(-1, 1), Error);
  EXPECT_THROW(t.reshape({4}), Error);
  EXPECT_EQ(to_string(t.shape()), "3 x 2");
}

}  // namespace
}  // namespace triax
