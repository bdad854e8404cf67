#include "comm/recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/local_ranks.h"
#include "support/comm_exercise.h"

namespace triax {
namespace {

using exercise::view;

// What each backend has to count for the same calls.
void make_calls(Communicator& c) {
  const int n = c.size();
  std::vector<float> ten(10), part(4), all(static_cast<size_t>(4 * n));
  std::vector<bf16> half(7);
  c.all_reduce(view(ten), view(ten), ReduceOp::sum).wait();
  c.all_reduce(view(half), view(half), ReduceOp::sum).wait();
  c.all_gather(view(part), view(all)).wait();
  c.reduce_scatter(view(all), view(part), ReduceOp::sum).wait();
  c.broadcast(view(ten), 0).wait();
  if (n > 1 && c.rank() == 0) c.send(view(ten), 1).wait();
  if (n > 1 && c.rank() == 1) c.recv(view(ten), 0).wait();
  c.barrier();
}

void expect_ledger(Communicator& c) {
  const double n = c.size();
  const auto entry = [&](CommOp op) {
    const auto& ledger = c.recorder().ledger();
    const auto it = ledger.find({c.name(), op});
    return it == ledger.end() ? Recorder::Entry{} : it->second;
  };
  EXPECT_EQ(entry(CommOp::all_reduce).calls, 2);
  EXPECT_DOUBLE_EQ(entry(CommOp::all_reduce).bytes, 2 * (n - 1) / n * (40 + 14));
  EXPECT_DOUBLE_EQ(entry(CommOp::all_gather).bytes, (n - 1) / n * 16 * n);
  EXPECT_DOUBLE_EQ(entry(CommOp::reduce_scatter).bytes, (n - 1) / n * 16 * n);
  EXPECT_DOUBLE_EQ(entry(CommOp::broadcast).bytes, (n - 1) / n * 40);
  EXPECT_EQ(entry(CommOp::send).calls, n > 1 && c.rank() == 0 ? 1 : 0);
  EXPECT_DOUBLE_EQ(entry(CommOp::send).bytes, n > 1 && c.rank() == 0 ? 40 : 0);
  EXPECT_EQ(entry(CommOp::recv).bytes, 0);
  EXPECT_EQ(entry(CommOp::barrier).calls, 1);
  EXPECT_EQ(entry(CommOp::barrier).bytes, 0);
  EXPECT_EQ(entry(CommOp::split).calls, 0);
}

TEST(Ledger, CountsTheRingPayloadOnThreads) {
  for (int n : {1, 2, 3, 7}) {
    run_local_ranks(n, {}, [](Communicator& world, int) {
      const auto group = world.split(0, "tp");
      make_calls(*group);
      expect_ledger(*group);
      EXPECT_EQ(world.recorder().ledger().count({"world", CommOp::barrier}), 0u);
    });
  }
}

TEST(Ledger, OfANullWorldIsThatOfARealOne) {
  for (int n : {1, 2, 3, 7}) {
    for (int rank = 0; rank < n; ++rank) {
      const auto world = make_null_communicator(rank, n, {});
      const auto group = make_null_communicator(rank, n, {}, "tp", world->shared_recorder());
      make_calls(*group);
      expect_ledger(*group);
      EXPECT_EQ(&world->recorder(), &group->recorder());
    }
  }
}

TEST(Ledger, StaysExactOverManyCalls) {
  const auto c = make_null_communicator(0, 3, {});
  std::vector<uint8_t> x(1);
  for (int i = 0; i < 30000; ++i) c->all_reduce(view(x), view(x), ReduceOp::sum);
  EXPECT_EQ(c->recorder().ledger().at({"world", CommOp::all_reduce}).bytes, 40000.0);
  c->recorder().clear();
  EXPECT_TRUE(c->recorder().ledger().empty());
}

TEST(Ledger, AddsGroupsOfOneNameAndSeveralSizes) {
  const auto three = make_null_communicator(0, 3, {}, "g");
  const auto two = make_null_communicator(0, 2, {}, "g", three->shared_recorder());
  std::vector<uint8_t> x(6);
  three->broadcast(view(x), 0);
  two->broadcast(view(x), 0);
  EXPECT_EQ(three->recorder().ledger().at({"g", CommOp::broadcast}).bytes, 4.0 + 3.0);
}

TEST(Ring, KeepsTheLatestCallsOldestFirst) {
  const auto c = make_null_communicator(0, 2, {}, "g");
  std::vector<float> x(3);
  EXPECT_EQ(c->recorder().whereabouts(), "has made no call yet");
  for (int i = 0; i < 300; ++i) c->broadcast(view(x), 1);
  const int line = __LINE__ - 1;
  const auto calls = c->recorder().recent();
  ASSERT_EQ(calls.size(), 256u);
  EXPECT_EQ(calls.front().sequence, 44u);
  EXPECT_EQ(calls.back().sequence, 299u);
  EXPECT_TRUE(calls.back().done);
  EXPECT_EQ(calls.back().count, 3);
  EXPECT_EQ(c->recorder().whereabouts(),
            fmt::format("has finished all its calls, the last one broadcast(from 1) number 299 of f32[3] at "
                        "comm/recorder_test.cpp:{} in group 'g'",
                        line));
}

/// A clock that the test sets.
class SetClock final : public DeviceClock {
 public:
  int mark() override {
    marks_.push_back(now);
    return static_cast<int>(marks_.size()) - 1;
  }
  double seconds(int from, int to) override {
    return marks_.at(static_cast<size_t>(to)) - marks_.at(static_cast<size_t>(from));
  }
  void restart() override { marks_.clear(); }
  double now = 0;

 private:
  std::vector<double> marks_;
};

TEST(DeviceSeconds, AreHeldInStartsAndWaitsAndMovingInBetween) {
  Recorder recorder;
  const auto tp = std::make_shared<const CommGroup>(CommGroup{"tp", 2, {}}),
             pp = std::make_shared<const CommGroup>(CommGroup{"pp", 2, {}});
  const CommCall reduce{.op = CommOp::all_reduce, .dtype = DType::f32, .count = 10},
      receive{.op = CommOp::recv, .dtype = DType::f32, .count = 10}, barrier{};
  const auto host = Recorder::Clock::now();
  SetClock clock;
  const auto at = [&](double now) { clock.now = now; };

  const uint64_t before = recorder.begin(tp, reduce, host);  // without a clock
  recorder.leave(host);
  EXPECT_EQ(recorder.begin_moving(), -1);
  recorder.set_device_clock(&clock);
  recorder.enter(before, host);
  at(1), recorder.leave(host), recorder.finish(before, host);

  at(2);
  const uint64_t first = recorder.begin(tp, reduce, host);
  at(2.5), recorder.leave(host);
  const uint64_t second = recorder.begin(pp, receive, host);
  at(2.75), recorder.leave(host);
  const uint64_t third = recorder.begin(pp, barrier, host);
  at(8), recorder.leave(host), recorder.finish(third, host);
  at(10), recorder.enter(first, host);
  const int begun = recorder.begin_moving();
  at(10.125), recorder.end_moving(begun, "tp", CommOp::all_reduce);
  at(11), recorder.leave(host), recorder.finish(first, host);
  at(20), recorder.enter(second, host);
  at(24), recorder.leave(host), recorder.finish(second, host);

  const auto sums = recorder.take_device_seconds();
  ASSERT_EQ(sums.size(), 2U);
  const auto& reduced = sums.at({"tp", CommOp::all_reduce});
  EXPECT_EQ(reduced.calls, 1);
  EXPECT_EQ(reduced.held, 1.5);
  EXPECT_EQ(reduced.moving, 0.125);
  const auto& received = sums.at({"pp", CommOp::recv});
  EXPECT_EQ(received.calls, 1);
  EXPECT_EQ(received.held, 4.25);
  EXPECT_EQ(received.moving, 0);
  EXPECT_TRUE(recorder.take_device_seconds().empty());
}

TEST(Null, ItCannotSplitButNeverWaits) {
  const auto c = make_null_communicator(2, 5, {});
  c->barrier();
  std::vector<float> x(3);
  c->recv(view(x), 0).wait();
  EXPECT_THROW(c->split(0, "g"), Error);
  EXPECT_EQ(c->split(-1, "g"), nullptr);
  EXPECT_THROW(make_null_communicator(5, 5, {}), Error);
}

// Rank 0 waits at once and does the work; rank 1 sleeps meanwhile, as if it computed.
TEST(Recorder, TellsHiddenFromExposedTime) {
  run_local_ranks(2, {}, [](Communicator& c, int rank) {
    std::vector<float> x(8 << 20);
    Pending sum = c.all_reduce(view(x), view(x), ReduceOp::sum);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    sum.wait();
    const Recorder& recorder = c.recorder();
    const auto& entry = recorder.ledger().at({"world", CommOp::all_reduce});
    EXPECT_EQ(entry.exposed_seconds, recorder.exposed_seconds());
    EXPECT_EQ(entry.hidden_seconds, recorder.hidden_seconds());
    EXPECT_GT(entry.exposed_seconds, 0);
    if (rank == 0) {
      EXPECT_LT(entry.hidden_seconds, 0.1 * entry.exposed_seconds);
    } else {
      EXPECT_GT(entry.hidden_seconds, 0);
      EXPECT_LT(entry.hidden_seconds, 0.35);
    }
    // A late wait for what is done already costs and hides nothing more.
    const double hidden = recorder.hidden_seconds();
    c.barrier();
    EXPECT_EQ(recorder.hidden_seconds(), hidden);
  });
}

}  // namespace
}  // namespace triax
