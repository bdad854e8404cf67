#include "engine/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "engine/report_data.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class Report : public testing::Test {
 protected:
  void SetUp() override {
    run_ = fs::temp_directory_path() /
           fmt::format("triax-report-{}-{}", getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(run_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(run_ / name, std::ios::app) << text;
  }
  static std::string line(int64_t step, double loss, const std::string& more = "") {
    return fmt::format(
        R"({{"step":{},"loss":{:.17g},"grad_norm":0.5,"lr":0.001,"tokens":{},"consumed_samples":{},)"
        R"("step_seconds":0.25,"tokens_per_second":4096,"tflops":0.01{},"peak_bytes":{}}})"
        "\n",
        step, loss, step * 1024, step * 8, more, 1 << 20);
  }
  // A falling curve of `steps` steps with validation every 10.
  void write_curve(int64_t steps) {
    for (int64_t s = 1; s <= steps; ++s)
      write("metrics.jsonl",
            line(s, 1 + 4.0 / static_cast<double>(s),
                 s % 10 == 0 ? fmt::format(R"(,"validation_loss":{})", 1.25 + 4.0 / static_cast<double>(s))
                             : ""));
  }
  std::string text() {
    std::ostringstream out;
    EXPECT_EQ(report(run_.string(), out), 0);
    return out.str();
  }
  std::string complaint() {
    std::ostringstream out;
    try {
      report(run_.string(), out);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);  // exit 2
      return error.what();
    }
    ADD_FAILURE() << "report() found something to report on: " << out.str();
    return "";
  }

  fs::path run_;
};

TEST_F(Report, LastAndBestValuesAreThoseOfTheFile) {
  write("job.yaml", "name: shakespeare\ntraining:\n  steps: 200\n");
  write_curve(40);
  write("metrics.jsonl", line(41, 1.5));
  const std::string out = text();
  EXPECT_NE(out.find("shakespeare: step 41 of 200, 41984 tokens, 10.2 s in steps, peak memory 1.0 MiB"),
            std::string::npos)
      << out;
  // Last 1.5 at 41; best 1 + 4 / 40 at 40; validation 1.25 + 4 / 40.
  EXPECT_NE(out.find("training loss           1.5000 (41)           1.1000 (40)"), std::string::npos) << out;
  EXPECT_NE(out.find("validation loss         1.3500 (40)           1.3500 (40)"), std::string::npos) << out;
  EXPECT_NE(out.find("picture: " + (run_ / "loss.svg").string()), std::string::npos) << out;
}

TEST_F(Report, CommunicationIsThereWhenTheMetricsHaveIt) {
  write("metrics.jsonl", line(1, 2));
  EXPECT_EQ(text().find("comm."), std::string::npos);
  write("metrics.jsonl", line(2, 2, R"(,"exposed_seconds":0.0125,"hidden_seconds":0.25)"));
  write("metrics.jsonl", line(3, 2, R"(,"exposed_seconds":0.015,"hidden_seconds":0.5)"));
  const std::string out = text();
  EXPECT_NE(out.find("exposed comm. (s)     0.015000 (3)          0.012500 (2)"), std::string::npos) << out;
  EXPECT_NE(out.find("hidden comm. (s)      0.500000 (3)\n"), std::string::npos) << out;
}

TEST_F(Report, PictureHoldsEveryPointAtItsPlace) {
  write_curve(40);
  text();
  const std::string svg = read(run_ / "loss.svg");
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<circle"), 4u);
  // The line of 40 points falls: x grows, y grows (downwards on the page).
  const size_t begin = svg.find("points=\"", svg.find("class=\"training\" points")) + 8;
  std::istringstream points(svg.substr(begin, svg.find('"', begin) - begin));
  double x = 0, y = 0, before_x = -1, before_y = -1;
  char comma;
  int n = 0;
  while (points >> x >> comma >> y) {
    EXPECT_GT(x, before_x);
    EXPECT_GE(y, before_y);
    before_x = x;
    before_y = y;
    ++n;
  }
  EXPECT_EQ(n, 40);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_EQ(svg.find("@import"), std::string::npos);
  EXPECT_EQ(svg.find("url("), std::string::npos);
  EXPECT_EQ(count(svg, "http"), 1u);  // the namespace, which is not fetched
}

TEST_F(Report, ALongRunKeepsItsSpikesInAPictureOfBoundedSize) {
  for (int s = 1; s <= 20000; ++s) write("metrics.jsonl", line(s, s == 12345 ? 9.75 : 2));
  text();
  const std::string svg = read(run_ / "loss.svg");
  EXPECT_LT(svg.size(), 60000u);
  RunReport run;
  run.name = "x";
  for (int s = 1; s <= 20000; ++s) run.loss.emplace_back(s, s == 12345 ? 9.75 : 2);
  EXPECT_EQ(svg.substr(svg.find("<polyline")), loss_svg(run).substr(loss_svg(run).find("<polyline")));
  run.loss[12344].second = 2;
  EXPECT_NE(svg, loss_svg(run));
}

TEST_F(Report, AFullDiskIsTheReasonGiven) {
  write_curve(2);
  fs::create_symlink("/dev/full", run_ / "loss.svg");
  std::ostringstream out;
  try {
    report(run_.string(), out);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  }
}

TEST_F(Report, NamesAreEscaped) {
  write("job.yaml", "name: 'a<b>&\"c\"'\n");
  write_curve(2);
  text();
  const std::string svg = read(run_ / "loss.svg");
  EXPECT_NE(svg.find("Loss of a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("a<b>"), std::string::npos);
}

TEST_F(Report, ALineThatIsStillBeingWrittenIsIgnored) {
  write_curve(3);
  write("metrics.jsonl", R"({"step":4,"loss":0.0)");
  const RunReport run = read_run(run_.string());
  EXPECT_EQ(run.last_step, 3);
  EXPECT_EQ(run.loss.size(), 3u);
  EXPECT_EQ(run.skipped_lines, 0);
}

TEST_F(Report, DamagedLinesAreSkippedAndCounted) {
  write_curve(2);
  write("metrics.jsonl", "\x01\x02 not json\n[1,2]\n{\"loss\":1}\n\n");
  write("metrics.jsonl", "{\"step\":3,\"loss\":null}\n{\"step\":4,\"loss\":\"NaN\"}\n");
  write("metrics.jsonl", line(5, 0.5));
  const RunReport run = read_run(run_.string());
  EXPECT_EQ(run.skipped_lines, 3);
  EXPECT_EQ(run.last_step, 5);
  EXPECT_EQ(run.loss.size(), 3u);
  EXPECT_NE(text().find("3 lines of metrics.jsonl can't be read"), std::string::npos);
}

TEST_F(Report, ARepeatedStepCountsOnceWithItsLaterValue) {
  write("metrics.jsonl", line(1, 5) + line(2, 4) + line(3, 3) + line(2, 2.5));
  const RunReport run = read_run(run_.string());
  EXPECT_EQ(run.loss, (Curve{{1, 5}, {2, 2.5}, {3, 3}}));
}

TEST_F(Report, NothingToReportOnIsBadUsageWithARemedy) {
  EXPECT_NE(complaint().find("metrics.jsonl can't be read; give the output_dir of a run"), std::string::npos);
  write("metrics.jsonl", "");
  EXPECT_NE(complaint().find("holds no step yet; let the run take a step"), std::string::npos);
  write("metrics.jsonl", "{\"step\":1,");
  EXPECT_NE(complaint().find("holds no step yet"), std::string::npos);
  fs::remove_all(run_);
  EXPECT_NE(complaint().find("is not a folder"), std::string::npos);
}

TEST_F(Report, ABrokenJobFileCostsOnlyTheName) {
  write("job.yaml", "name: [unclosed\n");
  write_curve(1);
  EXPECT_EQ(read_run(run_.string()).name, run_.filename().string());
  EXPECT_EQ(read_run(run_.string() + "/").name, run_.filename().string());
}

TEST(ReportAxis, TicksAreRoundAndInside) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(0, 200, 8), (std::vector<double>{0, 50, 100, 150, 200}));
  for (const double scale : {1e-6, 0.37, 1.0, 42.0, 9e8}) {
    const auto ticks = axis_ticks(1.3 * scale, 7.9 * scale, 6);
    ASSERT_GE(ticks.size(), 2u) << scale;
    EXPECT_LE(ticks.size(), 8u) << scale;
    EXPECT_GE(ticks.front(), 1.3 * scale * (1 - 1e-9));
    EXPECT_LE(ticks.back(), 7.9 * scale * (1 + 1e-9));
  }
  EXPECT_EQ(tick_label(0.25, 0.05), "0.25");
  EXPECT_EQ(tick_label(0.30000000000000004, 0.1), "0.3");
  EXPECT_EQ(tick_label(200, 50), "200");
}

TEST(ReportText, DrawsInAsciiOnlyWhereUnicodeIsNotWanted) {
  RunReport run;
  run.loss = {{1, 4}, {2, 3}, {3, 2}, {4, 1}};
  run.validation_loss = {{4, 1}};
  const std::string plain = loss_text(run, 20, 4, false);
  for (const char c : plain) EXPECT_LT(static_cast<unsigned char>(c), 128);
  // From the upper left to the lower right; the last point is also the validation's.
  std::istringstream lines(plain);
  std::string top, second, third, bottom;
  std::getline(lines, top);
  std::getline(lines, second);
  std::getline(lines, third);
  std::getline(lines, bottom);
  EXPECT_EQ(top.substr(0, 11), "   4.000 |.");
  EXPECT_EQ(bottom.substr(0, 10), "   1.000 |");
  EXPECT_EQ(bottom.back(), 'o');
  EXPECT_EQ(bottom.size(), 30u);
  EXPECT_NE(plain.find("validation loss"), std::string::npos);
}

TEST(ReportText, BrailleDotsLieWhereUnicodePutsThem) {
  RunReport run;
  run.loss = {{1, 1}, {2, 2}};
  // One cell: lower left (dot 7) to upper right (dot 4), with the line between them.
  const std::string text = loss_text(run, 1, 1, true);
  // Rows 3 2 1 0 of columns 0 0 0 1, by the integer line: dots 7, 3, 2 and 4 = 0x40 + 0x04 + 0x02 + 0x08.
  EXPECT_NE(text.find("\u284e"), std::string::npos) << text;
}

TEST(ReportText, FlatAndSingleCurvesDraw) {
  RunReport run;
  run.loss = {{7, 2}};
  EXPECT_NE(loss_text(run, 30, 5, false).find('.'), std::string::npos);
  run.loss = {{7, 2}, {8, 2}};
  EXPECT_NE(loss_text(run, 30, 5, true), "");
  run.loss = {};
  EXPECT_EQ(loss_text(run, 30, 5, true), "no finite loss to draw\n");
  EXPECT_NE(loss_svg(run).find("</svg>"), std::string::npos);
}

TEST(ReportText, TheEnvironmentDecidesTheCharacters) {
  const auto with = [](const char* all, const char* lang) {
    setenv("LC_ALL", all, 1);
    setenv("LC_CTYPE", "", 1);
    setenv("LANG", lang, 1);
    return environment_is_utf8();
  };
  EXPECT_TRUE(with("", "en_GB.UTF-8"));
  EXPECT_TRUE(with("C.utf8", "C"));
  EXPECT_FALSE(with("C", "en_GB.UTF-8"));
  EXPECT_FALSE(with("", "POSIX"));
  EXPECT_FALSE(with("", ""));
}

}  // namespace
}  // namespace triax
