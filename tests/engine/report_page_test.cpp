#include "engine/report_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/html.h"
#include "engine/job.h"
#include "engine/report.h"
#include "engine/report_chart.h"
#include "support/small_job.h"
#include "support/well_formed.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class ReportPage : public testing::Test {
 protected:
  ReportPage()
      : run_(fs::temp_directory_path() /
             fmt::format("triax-page-{}-{}", getpid(),
                         testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(run_);
  }
  ~ReportPage() override { fs::remove_all(run_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(run_ / name, std::ios::app) << text;
  }
  void write_steps(int64_t steps, const std::string& more = "") {
    std::string lines;
    for (int64_t s = 1; s <= steps; ++s)
      lines += fmt::format(
          R"({{"step":{},"loss":{:.17g},"grad_norm":0.5,"lr":0.001,"tokens":{},"step_seconds":0.25,)"
          R"("tokens_per_second":4096,"tflops":0.01,"exposed_seconds":0.05,"peak_bytes":1048576{}}})"
          "\n",
          s, s == steps / 2 ? 9.75 : 1 + 4.0 / static_cast<double>(s), s * 1024, more);
    write("metrics.jsonl", lines);
  }
  void write_job(const std::string& name) {
    RunConfig config = test::small_job(Architecture::gpt2, 40);
    config.name = name;
    config.output_dir = run_.string();
    config.optimizer.lr = 0.0125;
    config.data.train = {{"corpus.txt"}};
    write("job.yaml", to_yaml(config));
  }
  void write_summary(int64_t counted) {
    write("summary.json",
          Json{{"grid", {{"axes", {{{"name", "tp"}, {"size", 2}}, {{"name", "dp"}, {"size", 2}}}}}},
               {"stages",
                {{{"stage", 0},
                  {"rank", 0},
                  {"steps", 7},
                  {"planned_peak", 3000},
                  {"measured_peak", 3000},
                  {"memory", {{{"name", "weights"}, {"planned", 3000}, {"measured", 3000}}}},
                  {"communication",
                   {{{"group", "tp"},
                     {"operation", "all_reduce"},
                     {"calls", 14},
                     {"planned", 7000},
                     {"counted", counted}}}}}}},
               {"startup",
                {{"seconds", 0.5}, {"phases", {{{"name", "plan"}, {"longest", 0.25}, {"mean", 0.2}}}}}}}
              .dump());
  }
  // The page, well-formed and sufficient to itself.
  std::string page() {
    std::ostringstream out;
    EXPECT_EQ(report(run_.string(), out), 0);
    EXPECT_NE(out.str().find("report.html"), std::string::npos);
    std::ostringstream text;
    text << std::ifstream(run_ / "report.html").rdbuf();
    std::string html = text.str();
    EXPECT_EQ(test::not_well_formed(html), "");
    for (const char* outside : {"src=", "href=", "@import", "url(", "fetch("})
      EXPECT_EQ(count(html, outside), 0u) << outside;
    EXPECT_EQ(count(html, "http"), count(html, "xmlns=\"http://www.w3.org/2000/svg\""));
    return html;
  }

  fs::path run_;
};

TEST_F(ReportPage, OneStepOfAFolderWithNothingElseMakesAPage) {
  write_steps(1);
  const std::string html = page();
  EXPECT_GE(count(html, "<figure>"), 5u);
  EXPECT_EQ(count(html, "validation"), 0u);
  EXPECT_EQ(html.find("id=\"memory\""), std::string::npos);
}

TEST_F(ReportPage, EverythingFromOutsideIsEscaped) {
  write_job("<script>alert('x')</script> & \"co\"");
  write_steps(2, R"(,"<b>odd":1)");
  write("history.jsonl", R"({"event":"start","step":0,"ranks":4,"grid":"<g>","host":"h<i>","from":"/a&b"})"
                         "\n"
                         R"({"event":"end","step":2,"outcome":"fault","words":"<u>why</u>"})"
                         "\n");
  const std::string html = page();
  for (const char* raw : {"<script>alert", "<b>odd", "<g>", "h<i>", "/a&b", "<u>"})
    EXPECT_EQ(html.find(raw), std::string::npos) << raw;
  EXPECT_NE(html.find("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;co&quot;"),
            std::string::npos);
  EXPECT_NE(html.find("&lt;u&gt;why&lt;/u&gt;"), std::string::npos);
  EXPECT_NE(html.find("state fault"), std::string::npos);
}

TEST_F(ReportPage, ThousandsOfStepsMakeASmallPageThatKeepsItsSpike) {
  write_steps(20000);
  const std::string html = page();
  EXPECT_LT(html.size(), 400000u);
  // The highest loss, of one step in the middle, is the top of its line: 6 % of margin lie above it.
  const size_t loss = html.find("data-name=\"training\" points=\"");
  const std::string points = html.substr(loss, html.find("/>", loss) - loss);
  EXPECT_NE(points.find(" 499.97,"), std::string::npos) << points.substr(0, 200);
}

TEST_F(ReportPage, TablesHoldWhatTheRunLeft) {
  write_job("small");
  write_steps(40, R"(,"gradient_noise_scale":900,"validation_loss":2.5)");
  write_summary(7000);
  write("history.jsonl",
        "{\"event\":\"start\",\"step\":0,\"ranks\":4}\n"
        "{\"event\":\"start\",\"step\":20,\"ranks\":2,\"from\":\"/c/step-00000020\"}\n"
        "{\"event\":\"end\",\"step\":40,\"outcome\":\"finished\"}\n");
  fs::create_directories(run_ / "checkpoints/step-00000020");  // without a manifest
  const std::string html = page();
  EXPECT_EQ(count(html, "class=\"good\">equal"), 3u);  // weights, peak, all_reduce
  EXPECT_NE(html.find("state finished"), std::string::npos);
  EXPECT_NE(html.find("killed"), std::string::npos);  // the first start never ended
  EXPECT_NE(html.find("/c/step-00000020"), std::string::npos);
  EXPECT_NE(html.find("step-00000020</span>"), std::string::npos);
  EXPECT_NE(html.find("0 1 \u00b7 2 3"), std::string::npos);  // the tensor groups
  EXPECT_NE(html.find("0 2 \u00b7 1 3"), std::string::npos);  // the data groups
  EXPECT_NE(html.find("Gradient noise scale"), std::string::npos);
  EXPECT_NE(html.find("batch size <b>12</b>"), std::string::npos);
  EXPECT_GE(count(html, "class=\"mark\""), 6u);  // the resumed step, in every curve
  EXPECT_NE(html.find("id=\"schedule\""), std::string::npos);
  EXPECT_NE(html.find("From start to first step: 0.50 s"), std::string::npos);
  // What differs from the default is marked; what does not is not.
  const auto row = [&](const std::string& key) {
    const size_t at = html.find(">" + key + "</span>");
    const size_t begin = html.rfind("<tr", at);
    return at == std::string::npos ? "" : html.substr(begin, html.find("</tr>", at) - begin);
  };
  EXPECT_NE(row("optimizer.lr").find("class=\"changed\""), std::string::npos) << row("optimizer.lr");
  EXPECT_NE(row("optimizer.lr").find("0.0125"), std::string::npos);
  EXPECT_EQ(row("optimizer.eps").find("changed"), std::string::npos) << row("optimizer.eps");
  EXPECT_NE(row("optimizer.eps"), "");
}

TEST_F(ReportPage, WhatDiffersFromThePlanIsToldInRed) {
  write_steps(2);
  write_summary(6000);
  EXPECT_NE(page().find("class=\"bad\">\u22121\u2009000<"), std::string::npos);
}

TEST_F(ReportPage, AJobThatHoldsItsFolderIsRunning) {
  write_steps(2);
  write("history.jsonl", "{\"event\":\"start\",\"step\":0}\n");
  EXPECT_NE(page().find("state ended"), std::string::npos);
  write(".lock", "");
  const int file = open((run_ / ".lock").c_str(), O_RDONLY);
  flock(file, LOCK_EX);
  EXPECT_NE(page().find("state running"), std::string::npos);
  close(file);
}

TEST_F(ReportPage, DamagedFilesCostTheirPartAlone) {
  write_steps(3);
  write("summary.json", "{\"stages\": 3");
  write("history.jsonl", "half a li");
  write("job.yaml", "model: [");
  write("traces", "a file");
  EXPECT_GE(count(page(), "<figure>"), 5u);
}

TEST(ReportChart, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(2e6), "2M");
  EXPECT_EQ(short_number(2816), "2816");
  EXPECT_EQ(short_number(0.00031), "0.00031");
  EXPECT_EQ(short_number(-1.5e9), "-1.5G");
}

TEST(ReportChart, AWideSpreadIsLogarithmicAndAStackAddsUp) {
  Chart wide{"norm", "", {{"norm", {{1, 0.1}, {2, 10}, {3, 1000}}}}};
  EXPECT_EQ(chart_html(wide).find("data-log"), std::string::npos);
  wide.wide_log = true;
  const std::string html = chart_html(wide);
  EXPECT_NE(html.find("data-log"), std::string::npos);
  EXPECT_NE(html.find("points=\"0.00,1000.00 500.00,500.00 1000.00,0.00\""), std::string::npos) << html;
  Chart stack{"time", "", {{"a", {{1, 1}, {2, 1}}}, {"b", {{1, 1}, {2, 3}}}}};
  stack.stacked = true;
  // The top is 4, with 6 % of margin; the second line is at 2 and 4.
  EXPECT_NE(chart_html(stack).find("points=\"0.00,528.30 1000.00,56.60\""), std::string::npos)
      << chart_html(stack);
  EXPECT_EQ(chart_html({"nothing", "", {{"a", {}}}}), "");
}

}  // namespace
}  // namespace triax
