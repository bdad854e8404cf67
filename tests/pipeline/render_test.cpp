#include "pipeline/render.h"

#include <gtest/gtest.h>

#include <sstream>

#include "pipeline/schedule.h"

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

TEST(RenderSvg, DrawsEachSpanInsideTheFrame) {
  const Timeline timeline = simulate(make_schedule({"1f1b", 4, 1, 6}), {10, 9, 8, 1});
  const std::string svg = render_svg(timeline, "a < b & c");
  EXPECT_EQ(count(svg, "<title>"), 4u * 6 * 2);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, ">stage "), 4u);
  EXPECT_NE(svg.find("<title>forward of micro-batch 0: 0.000 to 10.000 ms"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(RenderSvg, AnEmptyTimelineIsAPictureToo) {
  EXPECT_EQ(render_svg({}, "").find("nan"), std::string::npos);
}

}  // namespace
}  // namespace triax
