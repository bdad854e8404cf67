#include "pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "pipeline/simulate.h"
#include "pipeline/validate.h"

namespace triax {
namespace {

std::vector<Action> work_of(const std::vector<Action>& actions) {
  std::vector<Action> work;
  for (const Action& a : actions)
    if (is_compute(a.kind)) work.push_back(a);
  return work;
}

std::string letters(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& a : work_of(actions))
    text.append(a.kind == ActionKind::forward ? "F" : "B").append(std::to_string(a.micro_batch)).append(" ");
  return text;
}

std::string refusal(const ScheduleShape& shape) {
  try {
    make_schedule(shape);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    return e.what();
  }
  return "accepted";
}

TEST(Schedule, EveryShapeIsProvenAndKeepsWhatThePapersSay) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      const Schedule gpipe = make_schedule({"gpipe", p, 1, m}), f1b1 = make_schedule({"1f1b", p, 1, m});
      ASSERT_NO_THROW(validate(gpipe)) << p << " stages, " << m << " micro-batches";
      ASSERT_NO_THROW(validate(f1b1)) << p << " stages, " << m << " micro-batches";
      const std::vector<int> kept_gpipe = in_flight(gpipe), kept_1f1b = in_flight(f1b1);
      for (int stage = 0; stage < p; ++stage) {
        EXPECT_EQ(kept_gpipe[stage], m);
        EXPECT_EQ(kept_1f1b[stage], std::min(m, p - stage))
            << "stage " << stage << " of " << p << ", m " << m;
      }
    }
}

// With F = B + W = 1 and free messages both schedules have the ideal bubble (p - 1) / (m + p - 1).
TEST(Schedule, BubbleOfTheIdealPipeline) {
  for (const char* name : {"gpipe", "1f1b"})
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m)
        EXPECT_NEAR(simulate(make_schedule({name, p, 1, m}), {1, 0.5, 0.5, 0}).bubble,
                    (p - 1.0) / (m + p - 1), 1e-12)
            << name << ", " << p << " stages, " << m << " micro-batches";
}

TEST(Schedule, OrderOfOneForwardOneBackward) {
  const Schedule s = make_schedule({"1f1b", 3, 1, 4});
  EXPECT_EQ(letters(s.stages[0]), "F0 F1 F2 B0 F3 B1 B2 B3 ");
  EXPECT_EQ(letters(s.stages[1]), "F0 F1 B0 F2 B1 F3 B2 B3 ");
  EXPECT_EQ(letters(s.stages[2]), "F0 B0 F1 B1 F2 B2 F3 B3 ");
}

TEST(Schedule, MessagesStandBesideTheWorkTheyServe) {
  using enum ActionKind;
  const Schedule s = make_schedule({"gpipe", 3, 1, 1});
  EXPECT_EQ(
      s.stages[0],
      (std::vector<Action>{{forward, 0, 0}, {send_forward, 0, 0}, {recv_backward, 0, 0}, {backward, 0, 0}}));
  EXPECT_EQ(s.stages[1], (std::vector<Action>{{recv_forward, 0, 0},
                                              {forward, 0, 0},
                                              {send_forward, 0, 0},
                                              {recv_backward, 0, 0},
                                              {backward, 0, 0},
                                              {send_backward, 0, 0}}));
  EXPECT_EQ(
      s.stages[2],
      (std::vector<Action>{{recv_forward, 0, 0}, {forward, 0, 0}, {backward, 0, 0}, {send_backward, 0, 0}}));
}

TEST(Schedule, OneStageSendsNothing) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const Schedule s = make_schedule({name, 1, 1, 5});
    EXPECT_EQ(s.stages[0], work_of(s.stages[0]));
  }
}

TEST(Schedule, RefusalsSayWhatWouldDo) {
  const std::string unknown = refusal({"2f2b", 2, 1, 2});
  EXPECT_NE(unknown.find("'2f2b'"), std::string::npos) << unknown;
  for (std::string_view name : schedule_names()) EXPECT_NE(unknown.find(name), std::string::npos) << unknown;
  EXPECT_NE(refusal({"1f1b", 2, 2, 2}).find("virtual_stages to 1"), std::string::npos);
  EXPECT_NE(refusal({"gpipe", 0, 1, 2}).find("at least one stage, not 0"), std::string::npos);
  EXPECT_NE(refusal({"gpipe", 1, 1, 0}).find("at least one micro-batch, not 0"), std::string::npos);
}

TEST(Schedule, SlotsAreNeverHeldByTwo) {
  const Schedule s = make_schedule({"1f1b", 4, 1, 9});
  const std::vector<SlotPlan> plans = assign_slots(s);
  for (int stage = 0; stage < 4; ++stage) {
    std::vector<int> holder(plans[stage].count, -1);
    for (const Action& a : work_of(s.stages[stage])) {
      int& h = holder.at(plans[stage].slot_of(a.chunk, a.micro_batch));
      if (a.kind == ActionKind::forward) {
        EXPECT_EQ(h, -1) << "stage " << stage << ", micro-batch " << a.micro_batch;
        h = a.micro_batch;
      } else {
        EXPECT_EQ(h, a.micro_batch) << "stage " << stage;
        h = -1;
      }
    }
  }
}

}  // namespace
}  // namespace triax
