#include <gtest/gtest.h>

#include "comm/local_ranks.h"
#include "support/comm_exercise.h"

namespace triax {
namespace {

class Threads : public ::testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Communicator&)>& body) {
    CommOptions options;
    options.timeout = std::chrono::seconds(100);
    run_local_ranks(GetParam(), options, [&](Communicator& world, int rank) {
      ASSERT_EQ(world.rank(), rank);
      ASSERT_EQ(world.size(), GetParam());
      body(world);
    });
  }
};

TEST_P(Threads, EveryOperationDtypeAndSizeIsTheSerialLoop) {
  run(exercise::all_dtypes);
}
TEST_P(Threads, OperationsUnderWayMayBeWaitedForInAnyOrder) {
  run(exercise::any_order_of_waits);
}
TEST_P(Threads, MessagesArriveInOrderInBothDirections) {
  run(exercise::messages);
}
TEST_P(Threads, GroupsWorkAtTheSameTime) {
  run(exercise::groups);
}
TEST_P(Threads, LargeBuffersAndBucketsHaveTheSameBits) {
  run(exercise::large);
}
INSTANTIATE_TEST_SUITE_P(Sizes, Threads, ::testing::Values(1, 2, 3, 5, 8));

TEST(Self, EveryOperationDtypeAndSizeIsTheSerialLoop) {
  const auto self = make_self_communicator({});
  EXPECT_EQ(self->size(), 1);
  exercise::all_dtypes(*self);
  exercise::any_order_of_waits(*self);
  exercise::groups(*self);
}

TEST(ThreadWorld, Has256RanksThatSleepWhileTheyWait) {
  const auto start = std::chrono::steady_clock::now();
  run_local_ranks(256, {}, [](Communicator& world, int rank) {
    const auto row = world.split(rank / 16, "row");
    for (int i = 0; i < 20; ++i) {
      exercise::all_reduce<float>(*row, 1000, ReduceOp::sum, true, i);
      world.barrier();
    }
    exercise::all_reduce<int64_t>(world, 5, ReduceOp::sum, false, 3);
    exercise::all_gather<int32_t>(world, 3, false, 4);
    std::vector<int32_t> out{rank}, in{-1};
    Pending received = world.recv(exercise::view(in), (rank + 255) % 256);
    world.send(exercise::view(out), (rank + 1) % 256).wait();
    received.wait();
    ASSERT_EQ(in[0], (rank + 255) % 256);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Waiting must not take processor time from the ranks that compute.
TEST(ThreadWorld, WaitingCostsNoProcessorTime) {
  run_local_ranks(8, {}, [](Communicator& world, int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    world.barrier();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double seconds =
        double(after.tv_sec - before.tv_sec) + 1e-9 * double(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(seconds, 0.05) << "rank " << rank;
  });
}

TEST(ThreadWorld, SumsOfSpecialFloats) {
  run_local_ranks(3, {}, [](Communicator& world, int rank) {
    const float nan = std::nanf(""), inf = INFINITY;
    std::vector<float> sum{rank == 1 ? nan : 1.0f, rank == 2 ? inf : 1.0f, -0.0f};
    std::vector<float> most = sum;
    std::vector<bf16> half{bf16{0x7f80}, bf16{static_cast<uint16_t>(rank == 1 ? 0x7fff : 0x3f80)}};
    world.all_reduce(exercise::view(sum), exercise::view(sum), ReduceOp::sum).wait();
    world.all_reduce(exercise::view(most), exercise::view(most), ReduceOp::max).wait();
    world.all_reduce(exercise::view(half), exercise::view(half), ReduceOp::sum).wait();
    EXPECT_TRUE(std::isnan(sum[0]) && std::isinf(sum[1]) && std::signbit(sum[2]));
    EXPECT_TRUE(std::isnan(most[0]) && std::isinf(most[1]));
    EXPECT_EQ(half[0].bits, 0x7f80);
    EXPECT_TRUE(std::isnan(exercise::value_of(half[1])));
  });
}

}  // namespace
}  // namespace triax
