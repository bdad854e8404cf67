#include "pipeline/render.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "pipeline/schedule.h"
#include "pipeline/validate.h"

namespace triax {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(RenderText, OneForwardOneBackward) {
  EXPECT_EQ(render_text(make_schedule({"1f1b", 2, 1, 3})),
            "stage 0, keeps 2 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
            "stage 1, keeps 1 | .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n");
}

TEST(RenderText, GPipe) {
  EXPECT_EQ(render_text(make_schedule({"gpipe", 2, 1, 2})),
            "stage 0, keeps 2 | F0 F1 .  .  .  B0 -- B1 --\n"
            "stage 1, keeps 2 | .  F0 F1 B0 -- B1 -- .  .\n");
}

TEST(RenderText, HalvesOfTheBackwardAndChunksAreTold) {
  using enum ActionKind;
  const Schedule halves{{"by hand", 1, 1, 1},
                        {{{forward, 0, 0}, {backward_input, 0, 0}, {backward_weight, 0, 0}}}};
  EXPECT_EQ(render_text(halves), "stage 0, keeps 1 | F0 B0 W0\n");
  const Schedule chunks{{"by hand", 1, 2, 1},
                        {{{forward, 0, 0}, {forward, 0, 1}, {backward, 0, 1}, {backward, 0, 0}}}};
  EXPECT_EQ(render_text(chunks), "stage 0, keeps 2 | F0a F0b B0b --  B0a --\n");
}

TEST(RenderText, WideSchedulesAreContinuedAndAligned) {
  const std::string text = render_text(make_schedule({"1f1b", 12, 1, 100}), 100);
  std::istringstream lines(text);
  size_t blocks = 0, bar = std::string::npos;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      ++blocks;
      continue;
    }
    EXPECT_LE(line.size(), 100u);
    if (bar == std::string::npos) bar = line.find('|');
    EXPECT_EQ(line.find('|'), bar) << line;
  }
  EXPECT_GT(blocks, 5u);
  EXPECT_EQ(count(text, "F99"), 12u);
  EXPECT_EQ(count(text, "B99"), 12u);
}

TEST(RenderText, LongSchedulesCanBeCutShort) {
  const Schedule s = make_schedule({"1f1b", 2, 1, 100});
  const std::string whole = render_text(s, 100), cut = render_text(s, 100, 3);
  EXPECT_EQ(count(cut, "stage 0"), 3u) << cut;
  EXPECT_NE(cut.find("\n... and " + std::to_string(count(whole, "stage 0") - 3) + " times as long"),
            std::string::npos)
      << cut;
  EXPECT_NE(cut.find("F0 "), std::string::npos);
  EXPECT_NE(cut.find("B99"), std::string::npos);
  EXPECT_EQ(render_text(s, 100, static_cast<int>(count(whole, "stage 0"))), whole);
}

TEST(RenderSvg, DrawsEachSpanInsideTheFrame) {
  const Schedule schedule = make_schedule({"1f1b", 4, 1, 6});
  const Timeline timeline = simulate(schedule, {10, 9, 8, 1});
  const std::string svg = render_svg({{timeline, "a < b & c", in_flight(schedule)}});
  EXPECT_EQ(count(svg, "<title>"), 4u * 6 * 2);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_NE(svg.find(fmt::format(">stage {}, keeps {}, idle {:.1f} %<", stage, 4 - stage,
                                   100 * timeline.stage_bubbles[stage])),
              std::string::npos);
  EXPECT_NE(svg.find("<title>forward of micro-batch 0: 0.000 to 10.000 ms"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

// The x of the last span's end, in pixels, in each half of the picture.
TEST(RenderSvg, StepsInOnePictureShareTheTimeAxis) {
  const Schedule schedule = make_schedule({"gpipe", 2, 1, 2});
  Timeline late = simulate(schedule, {10, 5, 5, 0});
  for (auto& spans : late.stages)
    for (Span& span : spans) span.start += 500, span.end += 500;
  const std::string svg = render_svg({{simulate(schedule, {10, 5, 5, 0}), "planned"}, {late, "measured"}});
  EXPECT_EQ(count(svg, "<title>"), 2u * 2 * 4);
  const size_t measured = svg.find("measured");
  ASSERT_NE(measured, std::string::npos);
  const auto first_x = [&](size_t from) {
    const size_t at = svg.find("<rect x=", from);
    return svg.substr(at, svg.find(" y=", at) - at);
  };
  EXPECT_EQ(first_x(0), first_x(measured)) << "a step begins at the left edge whenever it began";
  EXPECT_NE(svg.find("500.000 to 510.000 ms"), std::string::npos);
}

TEST(RenderSvg, AnEmptyTimelineIsAPictureToo) {
  EXPECT_EQ(render_svg({{{}, ""}}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace triax
