#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace triax {
namespace {

// lr 3e-3 to 3e-4 in 200 steps after a warm-up of 20: the job file of the documentation.
struct Case {
  LrScheduleConfig schedule{"cosine", 20, 200, 0, 3e-4};
  OptimizerConfig optimizer;
  int64_t total = 200;
  double at(int64_t step) const { return learning_rate(schedule, optimizer, step, total); }
};

Case named(const std::string& name) {
  Case c;
  c.schedule.name = name;
  c.optimizer.lr = 3e-3;
  return c;
}

TEST(LearningRate, WarmUpIsLinearFromStepOne) {
  for (const char* name : {"constant", "linear", "cosine", "wsd"}) {
    const Case c = named(name);
    EXPECT_DOUBLE_EQ(c.at(1), 1.5e-4) << name;
    EXPECT_DOUBLE_EQ(c.at(10), 1.5e-3) << name;
    EXPECT_DOUBLE_EQ(c.at(20), 3e-3) << name;
  }
}

TEST(LearningRate, Cosine) {
  const Case c = named("cosine");
  EXPECT_DOUBLE_EQ(c.at(110), 1.65e-3);                  // x = 1/2
  EXPECT_DOUBLE_EQ(c.at(80), 3e-4 + 2.7e-3 * 0.75);      // x = 1/3, cosine 1/2
  EXPECT_DOUBLE_EQ(c.at(140), 3e-4 + 2.7e-3 * 0.25);     // x = 2/3, cosine -1/2
  EXPECT_NEAR(c.at(21), 2.9997943884611284e-3, 1e-15);   // 3e-4 + 1.35e-3 (1 + cos(pi / 180))
  EXPECT_NEAR(c.at(199), 3.0020561153887174e-4, 1e-15);  // 3e-4 + 1.35e-3 (1 - cos(pi / 180))
  EXPECT_EQ(c.at(200), 3e-4);
  EXPECT_EQ(c.at(100000), 3e-4);
}

TEST(LearningRate, Linear) {
  const Case c = named("linear");
  EXPECT_DOUBLE_EQ(c.at(21), 3e-3 - 2.7e-3 / 180);
  EXPECT_DOUBLE_EQ(c.at(110), 1.65e-3);
  EXPECT_DOUBLE_EQ(c.at(155), 3e-4 + 2.7e-3 / 4);
  EXPECT_EQ(c.at(200), 3e-4);
  EXPECT_EQ(c.at(201), 3e-4);
}

TEST(LearningRate, ConstantNeverDecays) {
  const Case c = named("constant");
  for (int64_t step : {21, 200, 201, 1000000}) EXPECT_EQ(c.at(step), 3e-3);
}

TEST(LearningRate, WsdIsStableThenLinear) {
  Case c = named("wsd");
  c.schedule.decay_start = 150;
  for (int64_t step : {21, 100, 150}) EXPECT_EQ(c.at(step), 3e-3);
  EXPECT_DOUBLE_EQ(c.at(151), 3e-3 - 2.7e-3 / 50);
  EXPECT_DOUBLE_EQ(c.at(175), 1.65e-3);
  EXPECT_EQ(c.at(200), 3e-4);
  EXPECT_EQ(c.at(300), 3e-4);
}

TEST(LearningRate, WsdStartsAtNineTenthsByDefaultAndNotWithinTheWarmUp) {
  Case c = named("wsd");
  EXPECT_EQ(c.at(180), 3e-3);
  EXPECT_DOUBLE_EQ(c.at(190), 1.65e-3);
  c.schedule.decay_start = 5;
  EXPECT_DOUBLE_EQ(c.at(10), 1.5e-3);
  EXPECT_DOUBLE_EQ(c.at(110), 1.65e-3);
  c.schedule.decay_start = 200;
  EXPECT_EQ(c.at(200), 3e-3);
  EXPECT_EQ(c.at(201), 3e-4);
}

TEST(LearningRate, WithoutWarmUpTheDecayBeginsAtOnce) {
  for (const char* name : {"linear", "cosine"}) {
    Case c = named(name);
    c.schedule.warmup_steps = 0;
    EXPECT_LT(c.at(1), 3e-3) << name;
    EXPECT_DOUBLE_EQ(c.at(100), 1.65e-3) << name;
    EXPECT_EQ(c.at(200), 3e-4) << name;
  }
  Case constant = named("constant");
  constant.schedule.warmup_steps = 0;
  EXPECT_EQ(constant.at(1), 3e-3);
}

TEST(LearningRate, DecayThatEndsWithTheWarmUpOrBeforeIt) {
  for (const char* name : {"linear", "cosine", "wsd"})
    for (int64_t decay_steps : {20, 7}) {
      Case c = named(name);
      c.schedule.decay_steps = decay_steps;
      EXPECT_DOUBLE_EQ(c.at(10), 1.5e-3) << name;
      EXPECT_DOUBLE_EQ(c.at(20), 3e-3) << name;
      EXPECT_EQ(c.at(21), 3e-4) << name;
    }
}

TEST(LearningRate, DecayStepsDefaultToTheStepsOfTheJob) {
  Case c = named("linear");
  c.schedule.decay_steps = 0;
  c.total = 380;
  EXPECT_DOUBLE_EQ(c.at(200), 1.65e-3);
  EXPECT_EQ(c.at(380), 3e-4);
}

TEST(LearningRate, RefusesUnknownNamesAndStepZero) {
  Case c = named("cosinus");
  try {
    c.at(1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_STREQ(e.what(), "lr_schedule.name: 'cosinus' is unknown; it can be constant, linear, cosine, wsd");
  }
  EXPECT_THROW(named("cosine").at(0), Error);
}

}  // namespace
}  // namespace triax
