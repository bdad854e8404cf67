// Saves that are written while the ranks go on, and how ranks agree on a failure.

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/agree.h"
#include "checkpoint/background.h"
#include "logical_state.h"

namespace triax::test {
namespace {

TEST(Background, RanksWorkWhileItWritesAndMeetTwice) {
  TestFolder folder;
  fs::path saved;
  run_local_ranks(3, {}, [&](Communicator& world, int rank) {
    const Pieces snapshot = cut(small_model(), 3, rank, 1);
    fill(snapshot, 5);
    BackgroundSave save(world, request_of(folder.path(), 9, 3, snapshot));
    int meetings = 0;
    std::optional<SaveResult> result;
    while (!result) {  // a step of training: work, then agree on who is still writing
      int64_t writing = save.ready() ? 0 : 1;
      world.all_reduce(Tensor::of(&writing, {1}), Tensor::of(&writing, {1}), ReduceOp::sum).wait();
      if (writing > 0) continue;
      result = save.advance();
      ++meetings;
    }
    EXPECT_EQ(meetings, 2);
    EXPECT_EQ(result->step, 9);
    EXPECT_EQ(result->folder, folder / "step-00000009");
    EXPECT_GT(save.cpu_seconds(), 0);
    if (rank == 0) saved = result->folder;
  });
  EXPECT_EQ(load_and_compare(saved, 2, 5), 0);
}

TEST(Background, ASaveThatNobodyFinishesLeavesNothing) {
  TestFolder folder;
  run_local_ranks(2, {}, [&](Communicator& world, int rank) {
    const Pieces snapshot = cut(small_model(), 2, rank, 1);
    fill(snapshot, 5);
    for (int meetings = 0; meetings < 2; ++meetings) {
      BackgroundSave save(world, request_of(folder.path(), 9, 2, snapshot));
      if (meetings == 1) {
        EXPECT_FALSE(save.advance());
      }
    }
    world.barrier();
  });
  // The second one may have been completed before it was given up; then it is whole.
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().filename().string().rfind(".tmp-step", 0), 0U) << entry.path();
  if (fs::exists(folder / "step-00000009")) {
    EXPECT_EQ(load_and_compare(folder / "step-00000009", 1, 5), 0);
  }
}

TEST(Background, AFailureIsEveryRanksAndNamesTheOneThatFailed) {
  TestFolder folder;
  run_local_ranks(3, {}, [&](Communicator& world, int rank) {
    const Pieces snapshot = cut(small_model(), 3, rank, 1);
    SaveRequest request = request_of(folder.path(), 9, 3, snapshot);
    request.source = [&](size_t piece, int64_t begin, int64_t) -> const float* {
      check(rank != 1, "the memory is gone");
      return snapshot.list[piece].data + begin;
    };
    BackgroundSave save(world, request);
    try {
      save.finish();
      FAIL() << "rank " << rank << " noticed nothing";
    } catch (const AgreedError& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.cause(), ErrorKind::fault);
      EXPECT_EQ(e.kind(), rank == 1 ? ErrorKind::fault : ErrorKind::aborted);
      EXPECT_EQ(text.find("rank 1: checkpoint/background_test.cpp:") == 0, rank != 1) << text;
      EXPECT_NE(text.find("the memory is gone"), std::string::npos) << text;
      EXPECT_EQ(e.place().rfind(rank == 1 ? "checkpoint/background_test.cpp" : "checkpoint/", 0), 0U);
    }
  });
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Agree, WhoeverIsHeardFirstTheCauseIsToldOnceWithItsPlace) {
  for (int failing = 0; failing < 3; ++failing) {
    std::string text;
    try {
      run_local_ranks(3, {}, [&](Communicator& world, int rank) {
        collectively(world, [&] { check(rank != failing, "out of paper"); });
      });
    } catch (const Error& e) {
      text = e.place() + ": " + e.what();
    }
    EXPECT_EQ(text.rfind("checkpoint/background_test.cpp:", 0), 0U) << text;
    EXPECT_NE(text.find(fmt::format(": rank {}: out of paper", failing)), std::string::npos) << text;
    EXPECT_EQ(text.find("rank"), text.rfind("rank")) << text;
  }
}

TEST(Agree, ManyFailuresAreListedAndDamageStaysDamage) {
  run_local_ranks(8, {}, [&](Communicator& world, int rank) {
    try {
      collectively(world, [&] { check(rank == 0, "no {}", rank); });
      FAIL();
    } catch (const AgreedError& e) {
      const std::string text = e.what();
      if (rank == 0) {
        EXPECT_EQ(text.rfind("rank 1: checkpoint/background_test.cpp:", 0), 0U) << text;
        EXPECT_NE(text.find("no 4\nand 3 more ranks"), std::string::npos) << text;
      } else {
        EXPECT_EQ(text.rfind(fmt::format("no {}\nrank ", rank), 0), 0U) << text;
      }
    }
    EXPECT_THROW(collectively(world,
                              [&] {
                                if (rank == 2) throw DamagedCheckpoint("torn");
                              }),
                 DamagedCheckpoint);
    // Damage on one rank and another fault on the next: not for those who look for an older checkpoint.
    EXPECT_THROW(collectively(world,
                              [&] {
                                if (rank == 2) throw DamagedCheckpoint("torn");
                                if (rank == 3) fail("no memory");
                              }),
                 AgreedError);
  });
}

}  // namespace
}  // namespace triax::test
