#include "core/trace.h"

#include <gtest/gtest.h>

#include <thread>

namespace triax {
namespace {

using namespace std::chrono_literals;

TEST(Trace, SpansHaveTimesAndNumbers) {
  Trace trace;
  trace.start();
  {
    const TraceScope outer(&trace, "step", "all");
    const TraceScope inner(&trace, "pipeline", "forward", {{"micro_batch", 3}});
    std::this_thread::sleep_for(2ms);
  }
  ASSERT_EQ(trace.spans().size(), 2u);
  const Trace::Span &all = trace.spans()[0], &forward = trace.spans()[1];
  EXPECT_EQ(all.name, "all");
  EXPECT_EQ(forward.track, "pipeline");
  ASSERT_EQ(forward.numbers.size(), 1u);
  EXPECT_EQ(forward.numbers[0].first, "micro_batch");
  EXPECT_EQ(forward.numbers[0].second, 3);
  EXPECT_GE(forward.end - forward.start, 2.0);
  EXPECT_LE(all.start, forward.start);
  EXPECT_GE(all.end, forward.end);
}

TEST(Trace, NothingIsKeptWhileItIsOff) {
  Trace trace;
  { const TraceScope scope(&trace, "step", "before"); }
  trace.start();
  trace.stop();
  { const TraceScope scope(&trace, "step", "after"); }
  { const TraceScope scope(nullptr, "step", "nowhere"); }
  EXPECT_TRUE(trace.spans().empty());
}

TEST(Trace, StartingAgainForgets) {
  Trace trace;
  trace.start();
  { const TraceScope scope(&trace, "step", "old"); }
  trace.start(Trace::Clock::now() - 1s);
  { const TraceScope scope(&trace, "step", "new"); }
  ASSERT_EQ(trace.spans().size(), 1u);
  EXPECT_EQ(trace.spans()[0].name, "new");
  EXPECT_GE(trace.spans()[0].start, 1000.0);
}

TEST(Trace, PhasesFollowEachOther) {
  Trace trace;
  trace.start();
  {
    TracePhases phase(&trace, "step");
    phase.begin("first");
    phase.begin("second");
  }
  ASSERT_EQ(trace.spans().size(), 2u);
  EXPECT_LE(trace.spans()[0].end, trace.spans()[1].start);
  TracePhases nowhere(nullptr, "step");
  nowhere.begin("first");
}

}  // namespace
}  // namespace triax
