#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/local_ranks.h"
#include "support/comm_exercise.h"

namespace triax {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using exercise::view;

CommOptions timeout(std::chrono::milliseconds t) {
  CommOptions options;
  options.timeout = t;
  return options;
}

// The error that a run of ranks ends with.
template <class Body>
Error failure_of(int size, const CommOptions& options, Body body) {
  try {
    run_local_ranks(size, options, body);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::fault, "nothing was thrown");
}

void expect_words(const Error& error, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
        << "'" << word << "' is missing in: " << error.what();
}

TEST(LocalRanks, TheFirstCauseComesOutWithRankKindAndPlace) {
  int line = 0;
  const Error error = failure_of(4, timeout(60s), [&](Communicator& world, int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(50ms);
      line = __LINE__ + 1;
      fail_usage("disk {} is full", 7);
    }
    world.barrier();
  });
  EXPECT_STREQ(error.what(), "rank 2: disk 7 is full");
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_EQ(error.place(), fmt::format("comm/failure_test.cpp:{}", line));
}

TEST(LocalRanks, OtherExceptionsAreFaultsToo) {
  const Error error = failure_of(2, timeout(60s), [&](Communicator& world, int rank) {
    if (rank == 1) throw std::out_of_range("index 9");
    world.barrier();
  });
  EXPECT_STREQ(error.what(), "rank 1: index 9");
  EXPECT_EQ(error.kind(), ErrorKind::fault);
}

TEST(LocalRanks, SeveralCausesComeOutInTheirOrderTheFirstOneMarked) {
  std::atomic<bool> first{false};
  std::atomic<int> told{0};
  std::string text;
  try {
    run_local_ranks(
        4, timeout(60s),
        [&](Communicator& world, int rank) {
          if (rank == 2) fail("out of paper\nsecond line");
          while (!first) std::this_thread::sleep_for(1ms);
          if (rank == 1) fail("out of ink");
          if (rank == 3) fail("out of paper");  // nothing new
          world.barrier();
        },
        [&](const Error& error) {
          if (told++ == 0) {
            EXPECT_EQ(std::string(error.what()).rfind("rank 2: out of paper", 0), 0u);
          }
          first = true;
        });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "first cause: rank 2: out of paper\nsecond line\nafter that, rank 1: out of ink");
  EXPECT_EQ(told, 4) << "followers, too";
}

TEST(ThreadWorld, AbortWakesEveryRankWithinASecond) {
  constexpr int size = 6;
  ThreadWorld world(size, timeout(60s));
  std::atomic<int> waiting{0}, aborted{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto c = world.communicator(rank);
      const auto group = c->split(rank / 3, "half");
      std::vector<float> x(10);
      auto wait = [&] {
        ++waiting;
        if (rank == 0) c->barrier();
        if (rank == 1) c->recv(view(x), 2).wait();
        if (rank == 2) c->send(view(x), 4).wait();
        if (rank >= 3 && rank < 5) group->all_reduce(view(x), view(x), ReduceOp::sum).wait();
        if (rank == 5) c->recv(view(x), 0).wait();
      };
      // Also every later call.
      for (int i = 0; i < 2; ++i) {
        try {
          wait();
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::aborted);
          EXPECT_NE(std::string(error.what()).find("the power is off"), std::string::npos) << error.what();
          ++aborted;
        }
      }
    });
  }
  while (waiting < size) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(aborted, 0);
  const auto start = Clock::now();
  world.abort("the power is off");
  for (auto& t : threads) t.join();
  EXPECT_LT(Clock::now() - start, 1s);
  EXPECT_EQ(aborted, 2 * size);
}

TEST(TimeOut, SaysWhoWaitsWhereForWhomAndWhereTheyAre) {
  int waiting = 0, elsewhere = 0;
  const Error error = failure_of(4, timeout(300ms), [&](Communicator& world, int rank) {
    std::vector<float> x(12);
    const auto group = world.split(rank == 3 ? -1 : 0, "tp");
    if (rank == 3) {
      std::this_thread::sleep_for(600ms);
    } else if (rank == 1) {
      std::this_thread::sleep_for(100ms);  // so that it is not the first to give up
      elsewhere = __LINE__ + 1;
      group->recv(view(x), 2).wait();
    } else if (rank == 0) {
      waiting = __LINE__ + 1;
      group->barrier();
    } else {
      std::this_thread::sleep_for(100ms);
      group->barrier();
    }
  });
  EXPECT_EQ(error.kind(), ErrorKind::fault);
  expect_words(error,
               {"rank 0: time-out after 0.3 s", "rank 0 (world rank 0) of group 'tp' of 3 waits in barrier",
                fmt::format("failure_test.cpp:{}", waiting), "for rank 1",
                "rank 1 (world rank 1) has not finished recv(from 2) number 0 of f32[12] at "
                "comm/failure_test.cpp:" +
                    std::to_string(elsewhere)});
}

TEST(TimeOut, OfAMessageNamesThePeer) {
  const Error error = failure_of(2, timeout(200ms), [&](Communicator& world, int rank) {
    std::vector<double> x(5);
    if (rank == 1) world.send(view(x), 0).wait();
    if (rank == 0) std::this_thread::sleep_for(500ms);
  });
  expect_words(error, {"rank 1: time-out after 0.2 s", "waits in send(to 0) number 0 of f64[5]", "for rank 0",
                       "rank 0 (world rank 0) has made no call yet"});
}

TEST(OrderCheck, ReportsTheDifferenceByRankAndPlace) {
  struct Case {
    std::function<void(Communicator&)> odd;
    std::string words;
  };
  std::vector<Case> cases{
      {[](Communicator& w) { w.barrier(); }, "barrier number 0 at"},
      {[](Communicator& w) {
         std::vector<float> x(9);
         w.all_reduce(view(x), view(x), ReduceOp::sum).wait();
       },
       "all_reduce(sum) number 0 of f32[9]"},
      {[](Communicator& w) {
         std::vector<float> x(8);
         w.all_reduce(view(x), view(x), ReduceOp::max).wait();
       },
       "all_reduce(max) number 0 of f32[8]"},
      {[](Communicator& w) {
         std::vector<int32_t> x(8);
         w.all_reduce(view(x), view(x), ReduceOp::sum).wait();
       },
       "all_reduce(sum) number 0 of i32[8]"},
  };
  for (const Case& test : cases) {
    const Error error = failure_of(3, timeout(60s), [&](Communicator& world, int rank) {
      if (rank == 2) return test.odd(world);
      std::vector<float> x(8);
      world.all_reduce(view(x), view(x), ReduceOp::sum).wait();
    });
    EXPECT_EQ(error.kind(), ErrorKind::fault);
    expect_words(error,
                 {"differ in their collective number 0",
                  "all_reduce(sum) number 0 of f32[8] at comm/failure_test", "rank 2 called", test.words});
  }
}

TEST(OrderCheck, RootsMustAgree) {
  const Error error = failure_of(2, timeout(60s), [&](Communicator& world, int rank) {
    std::vector<float> x(8);
    world.broadcast(view(x), rank).wait();
  });
  expect_words(error, {"broadcast(from 0)", "broadcast(from 1)"});
}

TEST(Messages, OfAnotherSizeAreRefused) {
  const Error error = failure_of(2, timeout(60s), [&](Communicator& world, int rank) {
    std::vector<float> x(8), y(9);
    if (rank == 0)
      world.send(view(x), 1).wait();
    else
      world.recv(view(y), 0).wait();
  });
  expect_words(error, {"send(to 1) number 0 of f32[8]", "recv(from 0) number 0 of f32[9]"});
}

TEST(Members, ThatLeaveEarlyAreNamedAtOnce) {
  const auto start = Clock::now();
  const Error error = failure_of(3, timeout(60s), [&](Communicator& world, int rank) {
    auto group = world.split(0, "g");
    if (rank == 1) group.reset();
    if (rank != 1) group->barrier();
    if (rank == 1) std::this_thread::sleep_for(100ms);
  });
  EXPECT_LT(Clock::now() - start, 10s);
  expect_words(error,
               {"of group 'g' of 3 waits in barrier", "for rank 1, which has given up its communicator"});
}

TEST(Pending, IsTakenBackWhenItsRankFails) {
  // Rank 0 fails with operations under way that nobody will ever answer: its stack unwinds at once, and the
  // others end as followers.
  const auto start = Clock::now();
  const Error error = failure_of(3, timeout(60s), [&](Communicator& world, int rank) {
    std::vector<float> x(100), y(100), z(1000000);
    if (rank == 0) {
      Pending all = world.all_reduce(view(x), view(x), ReduceOp::sum);
      Pending message = world.recv(view(y), 1);
      fail("out of paper");
    }
    world.all_reduce(view(x), view(x), ReduceOp::sum).wait();
    world.all_reduce(view(z), view(z), ReduceOp::sum).wait();
  });
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_STREQ(error.what(), "rank 0: out of paper");
}

TEST(Pending, WaitsInItsDestructorAndWhenReplaced) {
  run_local_ranks(2, timeout(60s), [&](Communicator& world, int rank) {
    std::vector<int32_t> x{rank + 1}, y{rank + 1};
    if (rank == 1) std::this_thread::sleep_for(20ms);
    {
      Pending p = world.all_reduce(view(x), view(x), ReduceOp::sum);
      p = world.all_reduce(view(y), view(y), ReduceOp::sum);
      EXPECT_EQ(x[0], 3);
    }
    EXPECT_EQ(y[0], 3);
  });
}

TEST(Front, RefusesWhatDoesNotFit) {
  const auto c = make_null_communicator(1, 4, {}, "tp");
  std::vector<float> four(4), eight(8), sixteen(16);
  std::vector<int32_t> integers(4);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto expect = [&](const std::function<void()>& call, const std::string& word) {
    const std::string text = message(call);
    EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_NE(text.find("comm/failure_test.cpp"), std::string::npos) << text;
    EXPECT_NE(text.find("group 'tp' of 4"), std::string::npos) << text;
  };
  expect([&] { c->all_reduce(view(four), view(eight), ReduceOp::sum); }, "in is f32[4], out is f32[8]");
  expect([&] { c->all_reduce(view(four), view(integers), ReduceOp::sum); }, "in is f32[4], out is i32[4]");
  expect(
      [&] { c->all_reduce(Tensor::of(eight.data(), {4}), Tensor::of(eight.data() + 2, {4}), ReduceOp::sum); },
      "the same or apart");
  expect([&] { c->all_gather(view(four), view(eight)); }, "4 times the elements of in");
  expect([&] { c->all_gather(Tensor::of(sixteen.data(), {4}), view(sixteen)); }, "part 1 of out");
  expect([&] { c->reduce_scatter(view(eight), view(four), ReduceOp::sum); }, "4 times the elements of out");
  expect([&] { c->reduce_scatter(view(sixteen), Tensor::of(sixteen.data(), {4}), ReduceOp::sum); },
         "part 1 of in");
  expect([&] { c->broadcast(view(four), 4); }, "there is no rank 4; valid are 0 to 3");
  expect([&] { c->send(view(four), -1); }, "there is no rank -1");
  expect([&] { c->recv(view(four), 1); }, "the caller itself");
  EXPECT_EQ(message([&] { c->all_gather(Tensor::of(sixteen.data() + 4, {4}), view(sixteen)); }), "accepted");
}

}  // namespace
}  // namespace triax
