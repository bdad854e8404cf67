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
  const bool chunks =
      std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.chunk > 0; });
  for (const Action& a : work_of(actions)) {
    text += a.kind == ActionKind::forward ? 'F' : a.kind == ActionKind::backward_weight ? 'W' : 'B';
    text += std::to_string(a.micro_batch);
    if (chunks) text += static_cast<char>('a' + a.chunk);
    text += ' ';
  }
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

TEST(Schedule, ZeroBubbleKeepsOnEachStageWhat1f1bKeepsOnTheFirst) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 20; ++m) {
      const Schedule s = make_schedule({"zb-h1", p, 1, m});
      ASSERT_NO_THROW(validate(s)) << p << " stages, " << m << " micro-batches";
      EXPECT_EQ(in_flight(s), std::vector<int>(p, std::min(m, p))) << p << " stages, m " << m;
    }
}

TEST(Schedule, InterleavedKeepsWhatItsFormulaSays) {
  for (int p = 1; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = p; m <= 4 * p; m += p) {
        const Schedule s = make_schedule({"interleaved", p, v, m});
        ASSERT_NO_THROW(validate(s)) << p << " stages of " << v << " chunks, " << m << " micro-batches";
        const std::vector<int> kept = in_flight(s);
        for (int i = 0; i < p; ++i)
          EXPECT_EQ(kept[i], std::min(m * v, 2 * (p - 1 - i) + (v - 1) * p + 1))
              << "stage " << i << " of " << p << ", v " << v << ", m " << m;
      }
}

TEST(Schedule, EvaluationKeepsOneMicroBatch) {
  for (const ScheduleShape& shape :
       {ScheduleShape{"gpipe", 1, 1, 3}, ScheduleShape{"1f1b", 4, 1, 7}, ScheduleShape{"zb-h1", 3, 1, 2},
        ScheduleShape{"interleaved", 1, 3, 4}, ScheduleShape{"interleaved", 2, 3, 6},
        ScheduleShape{"interleaved", 4, 2, 8}}) {
    const Schedule s = make_evaluation(shape);
    ASSERT_NO_THROW(validate(s)) << shape.name << ", " << shape.stages << " stages";
    EXPECT_EQ(in_flight(s), std::vector<int>(shape.stages, 1)) << shape.name;
    for (const auto& actions : s.stages)
      EXPECT_EQ(static_cast<int>(work_of(actions).size()), shape.micro_batches * shape.virtual_stages);
  }
}

// Interleaving divides the bubble by the number of chunks (Narayanan et al. 2021, section 2.2).
TEST(Schedule, InterleavingDividesTheBubble) {
  for (int p = 2; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m : {p, 2 * p, 5 * p})
        for (const ActionTimes& t :
             {ActionTimes{1, 0.5, 0.5, 0}, ActionTimes{1, 1, 1, 0}, ActionTimes{3, 1, 0.5, 0}}) {
          const double work = t.forward + t.backward_input + t.backward_weight, idle = (p - 1) * work / v;
          EXPECT_NEAR(simulate(make_schedule({"interleaved", p, v, m}), t).bubble, idle / (m * work + idle),
                      1e-12)
              << p << " stages of " << v << " chunks, " << m << " micro-batches";
        }
}

// ZB-H1 leaves (p - 1)(F + B - W) of 1F1B's (p - 1)(F + B + W) (Qi et al. 2024, table 2).
TEST(Schedule, ZeroBubbleFillsTheWaitsWithWeights) {
  for (int p = 1; p <= 8; ++p)
    for (int m : {p, 2 * p, 5 * p})
      for (const ActionTimes& t : {ActionTimes{1, 1, 1, 0}, ActionTimes{2, 2, 1, 0}, ActionTimes{3, 2, 1, 0},
                                   ActionTimes{1, 3, 0.5, 0}}) {
        const double idle = (p - 1) * (t.forward + t.backward_input - t.backward_weight),
                     work = m * (t.forward + t.backward_input + t.backward_weight);
        EXPECT_NEAR(simulate(make_schedule({"zb-h1", p, 1, m}), t).bubble, idle / (work + idle), 1e-12)
            << p << " stages, " << m << " micro-batches";
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

TEST(Schedule, OrderOfZeroBubble) {
  const Schedule s = make_schedule({"zb-h1", 3, 1, 4});
  EXPECT_EQ(letters(s.stages[0]), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 ");
  EXPECT_EQ(letters(s.stages[1]), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3 ");
  EXPECT_EQ(letters(s.stages[2]), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 ");
}

TEST(Schedule, OrderOfInterleaved) {
  const Schedule s = make_schedule({"interleaved", 2, 2, 4});
  EXPECT_EQ(letters(s.stages[0]), "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a ");
  EXPECT_EQ(letters(s.stages[1]), "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a ");
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
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
    const Schedule s = make_schedule({name, 1, name == std::string("interleaved") ? 3 : 1, 5});
    EXPECT_EQ(s.stages[0], work_of(s.stages[0]));
  }
}

TEST(Schedule, RefusalsSayWhatWouldDo) {
  const std::string unknown = refusal({"2f2b", 2, 1, 2});
  EXPECT_NE(unknown.find("'2f2b'"), std::string::npos) << unknown;
  for (std::string_view name : schedule_names()) EXPECT_NE(unknown.find(name), std::string::npos) << unknown;
  EXPECT_NE(refusal({"1f1b", 2, 2, 2}).find("virtual_stages to 1"), std::string::npos);
  EXPECT_NE(refusal({"zb-h1", 2, 2, 2}).find("virtual_stages to 1"), std::string::npos);
  EXPECT_NE(refusal({"interleaved", 2, 1, 2}).find("virtual_stages to 2 or more"), std::string::npos);
  EXPECT_NE(refusal({"interleaved", 4, 2, 6}).find("there can be 4 or 8"), std::string::npos);
  EXPECT_NE(refusal({"interleaved", 4, 2, 3}).find("there can be 4"), std::string::npos);
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
