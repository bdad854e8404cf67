#include "bench/profile.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace triax {
namespace {

TEST(Profile, CountsTheCallsOfEachKernelAndOfEachShape) {
  const auto cpu = make_cpu_device(1);
  TimedDevice device(*cpu);
  std::vector<float> x(64, 2), y(64, 1);
  const Kernels& kernels = timed_kernels();
  kernels.add(device, {64, x.data(), y.data()});
  kernels.add(device, {32, x.data(), y.data()});
  Gemm op{.m = 4, .n = 4, .k = 4, .a = x.data(), .lda = 4, .b = x.data(), .ldb = 4, .c = y.data(), .ldc = 4};
  kernels.gemm(device, op);
  op.k = 2;
  kernels.gemm(device, op);
  EXPECT_EQ(y[0], 8);  // what was computed is the last product: 2 * (2 * 2)
  EXPECT_EQ(y[16], 5);
  ASSERT_EQ(device.lines().size(), 3U);
  const TimedDevice::Line& add = device.lines().at("add");
  EXPECT_EQ(add.calls, 2);
  EXPECT_EQ(add.bytes, 3 * 4 * 96);
  EXPECT_GT(add.seconds, 0);
  EXPECT_EQ(device.lines().at("gemm NN 4 x 4 x 2").flops, 2 * 4 * 4 * 2);
}

TEST(Profile, SharesAddUpToTheStep) {
  std::ostringstream out;
  // Two steps of 4 s; at the roof `quick` would take 1 s of its 2, `large` all of its 4.
  print_profile(out, {{"quick", {4, 2, 10, 0}}, {"large", {2, 4, 0, 400}}}, 2, 8, {10, 100});
  EXPECT_EQ(out.str(),
            "  kernel                             calls         ms   of step  of roof\n"
            "  large                                  1   2000.000   50.00 %    100 %\n"
            "  quick                                  2   1000.000   25.00 %     50 %\n"
            "  outside kernels                            1000.000   25.00 %         \n");
}

}  // namespace
}  // namespace triax
