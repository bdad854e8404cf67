#include "launch/plan_schedule.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

ScheduleOptions zero_bubble() {
  ScheduleOptions options;
  options.name = "zb-h1";
  options.stages = 8;
  options.micro_batches = 24;
  options.times = "18.522,18.086,9.337,0.601";
  return options;
}

std::string printed(const ScheduleOptions& options, bool json) {
  testing::internal::CaptureStdout();
  const int status = plan_schedule_alone(options, json);
  std::fflush(stdout);
  std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  return text;
}

std::string refusal(const ScheduleOptions& options) {
  try {
    plan_schedule_alone(options, true);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(PlanSchedule, JsonHasThePublishedBubbleAndWhatIsInFlight) {
  const Json plan = Json::parse(printed(zero_bubble(), true));
  EXPECT_DOUBLE_EQ(std::round(plan.at("bubble").get<double>() * 1e4) / 1e4, 0.1585);
  EXPECT_EQ(plan.at("in_flight"), Json(std::vector<int>(8, 8)));
  EXPECT_EQ(plan.at("times").at("message"), 0.601);
  ScheduleOptions options = zero_bubble();
  options.name = "1f1b";
  const Json one = Json::parse(printed(options, true));
  EXPECT_DOUBLE_EQ(std::round(one.at("bubble").get<double>() * 1e4) / 1e4, 0.2431);
  EXPECT_EQ(one.at("in_flight"), Json({8, 7, 6, 5, 4, 3, 2, 1}));
}

TEST(PlanSchedule, TextDrawsEveryStage) {
  ScheduleOptions options = zero_bubble();
  options.stages = 3, options.micro_batches = 4, options.times = "1,1,1";
  const std::string text = printed(options, false);
  EXPECT_NE(text.find("schedule zb-h1, 3 stages, 4 micro-batches: bubble 14.29 %"), std::string::npos)
      << text;
  EXPECT_NE(text.find("stage 2, keeps 3 | .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"), std::string::npos)
      << text;
}

TEST(PlanSchedule, PicturesAreWritten) {
  const fs::path picture =
      fs::temp_directory_path() / ("triax-plan-schedule-" + std::to_string(getpid()) + ".svg");
  ScheduleOptions options = zero_bubble();
  options.svg = picture.string();
  EXPECT_NE(printed(options, false).find("drawn in " + options.svg), std::string::npos);
  std::ostringstream svg;
  svg << std::ifstream(picture).rdbuf();
  fs::remove(picture);
  EXPECT_EQ(svg.str().rfind("<svg", 0), 0u);
  EXPECT_NE(svg.str().find("planned: zb-h1, 8 stages, 24 micro-batches: bubble 15.85 %"), std::string::npos);
  EXPECT_NE(svg.str().find(">stage 7, keeps 8, idle 15.9 %<"), std::string::npos);
  options.svg = "/nowhere/at/all.svg";
  EXPECT_THROW(plan_schedule_alone(options, true), Error);
  options = {.name = "gpipe", .stages = 2, .micro_batches = 2};
  options.svg = "/dev/full";
  try {
    plan_schedule_alone(options, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  }
}

TEST(PlanSchedule, RefusalsSayWhatIsWanted) {
  const auto with = [](auto change) {
    ScheduleOptions options = zero_bubble();
    change(options);
    return refusal(options);
  };
  for (const char* times : {"1", "1,2", "1,2,3,4,5", "1,2,-3", "1,2,x", "1,2,", "1,,2", "nan,1,1", ",1,2"})
    EXPECT_NE(with([&](ScheduleOptions& o) { o.times = times; }).find("for example --times 18.5"),
              std::string::npos)
        << times;
  EXPECT_NE(with([](ScheduleOptions& o) { o.stages = 0; }).find("wants --stages"), std::string::npos);
  EXPECT_NE(with([](ScheduleOptions& o) { o.name = "gpip"; }).find("it can be gpipe, 1f1b"),
            std::string::npos);
  EXPECT_NE(with([](ScheduleOptions& o) { o.stages = 60000, o.micro_batches = 1000; }).find("at most"),
            std::string::npos);
}

}  // namespace
}  // namespace triax
