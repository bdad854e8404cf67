// What a run shows: its report in a browser, its trace, the console, TensorBoard's reader, and its start.
#include <pty.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <set>
#include <sstream>

#include "job_runs.h"
#include "support/python.h"

namespace triax::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kJob = R"(
name: seen
model: {vocab_size: 256, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 64,
        max_position_embeddings: 16}
parallel: {tensor: 2, pipeline: 2, data: 2}
training: {steps: 6, global_batch_size: 8, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}], validation: [{path: corpus.txt}], validation_interval: 2, validation_batches: 1}
checkpoint: {interval: 3}
)";

class ObserveTest : public JobRuns {
 protected:
  ObserveTest() : JobRuns(kJob) {}
  std::string text(const fs::path& path) const {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  Json json(const fs::path& path) const { return Json::parse(std::ifstream(path)); }
  int shell(const std::string& command) const {
    const int status = std::system(("cd " + dir_.string() + " && " + command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(ObserveTest, ATracedSaveIsInTheTraceOfItsStepWithAllRanks) {
  ASSERT_EQ(triax("run", "--set logging.trace=true --set logging.trace_steps=[3,4] --set training.steps=9"),
            0)
      << output("run");
  const Json trace = json(dir_ / "run/traces/step-00000003.json");
  EXPECT_TRUE(fs::exists(dir_ / "run/traces/step-00000004.json"));
  std::set<int> copied, written, worked;
  double step_end = 0, written_end = 0;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid");
    const double end = event.at("ts").get<double>() + event.at("dur").get<double>();
    EXPECT_GE(event.at("ts").get<double>(), 0);
    if (event.at("name") == "copy state") copied.insert(rank);
    if (event.at("cat") == "pipeline") worked.insert(rank);
    if (event.at("cat") == "step") step_end = std::max(step_end, end);
    if (event.at("cat") == "checkpoint writer")
      written.insert(rank), written_end = std::max(written_end, end);
  }
  const std::set<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(worked, all);
  EXPECT_EQ(copied, all);
  EXPECT_EQ(written, all) << "what was written in the background after the step";
  EXPECT_GT(written_end, step_end);
}

TEST_F(ObserveTest, StepsToTraceThatNeverComeAreRefused) {
  EXPECT_EQ(triax("run", "--set logging.trace_steps=[2]"), 2);
  EXPECT_NE(output("run").find("trace_steps can be [], or trace true"), std::string::npos) << output("run");
  EXPECT_EQ(triax("run", "--set logging.trace=true --set logging.trace_steps=[2,7]"), 2);
  EXPECT_NE(output("run").find("logging.trace_steps: 7 is after the last step; its steps can be 1 to 6"),
            std::string::npos)
      << output("run");
}

TEST_F(ObserveTest, TheSummaryHoldsPlanAndMeasureOfEachStage) {
  ASSERT_EQ(triax("run", ""), 0) << output("run");
  const Json summary = json(dir_ / "run/summary.json");
  EXPECT_EQ(summary.at("ranks"), 8);
  EXPECT_EQ(summary.at("step"), 6);
  ASSERT_EQ(summary.at("stages").size(), 2u);
  for (const Json& stage : summary.at("stages")) {
    EXPECT_EQ(stage.at("planned_peak"), stage.at("measured_peak"));
    EXPECT_EQ(stage.at("steps"), 6);
    for (const Json& line : stage.at("memory")) EXPECT_EQ(line.at("planned"), line.at("measured")) << line;
    double bytes = 0;
    for (const Json& line : stage.at("communication")) {
      EXPECT_EQ(line.at("planned"), line.at("counted")) << line;
      bytes += line.at("counted").get<double>();
    }
    EXPECT_GT(bytes, 0);
  }
  double phases = 0;
  for (const Json& phase : summary.at("startup").at("phases")) phases += phase.at("mean").get<double>();
  EXPECT_GT(phases, 0);
  EXPECT_LE(phases, summary.at("startup").at("seconds").get<double>() * 1.001);
  // Stopped, and resumed on another grid: both are history.
  ASSERT_EQ(triax("run", "--set training.steps=8 --set parallel.tensor=1 --set parallel.data=1"), 0)
      << output("run");
  std::ifstream in(dir_ / "run/history.jsonl");
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("ranks"), 8);
  EXPECT_EQ(lines[1].at("outcome"), "finished");
  EXPECT_EQ(lines[2].at("ranks"), 2);
  EXPECT_EQ(lines[2].at("step"), 6);
  EXPECT_NE(lines[2].at("from").get<std::string>().find("step-00000006"), std::string::npos);
  EXPECT_EQ(lines[3].at("step"), 8);
}

// What the program writes to a terminal of its own.
std::string on_terminal(const std::string& command) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  char part[4096];
  for (ssize_t n; (n = read(terminal, part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
  close(terminal);
  waitpid(child, nullptr, 0);
  return text;
}

TEST_F(ObserveTest, ColoursAreForTerminalsThatWantThem) {
  const std::string wrong = std::string(TRIAX_BINARY_DIR) + "/triax train nowhere.yaml";
  const std::string red = "\x1b[31mtriax: error:\x1b[0m";
  EXPECT_NE(on_terminal("TERM=xterm NO_COLOR= " + wrong).find(red), std::string::npos);
  EXPECT_EQ(on_terminal("TERM=xterm NO_COLOR=1 " + wrong).find('\x1b'), std::string::npos);
  EXPECT_EQ(on_terminal("TERM=dumb " + wrong).find('\x1b'), std::string::npos);
  EXPECT_EQ(shell("TERM=xterm " + wrong + " > piped 2>&1"), 2);
  EXPECT_EQ(text(dir_ / "piped").rfind("triax: error: ", 0), 0u) << text(dir_ / "piped");
}

TEST_F(ObserveTest, QuietSaysNothingAndVerboseSaysWhatRanksSay) {
  const std::string two = "--set parallel.pipeline=1 --set parallel.data=1 --set training.steps=4 ";
  ASSERT_EQ(triax("quiet", two + "--quiet"), 0);
  EXPECT_EQ(output("quiet"), "");
  ASSERT_EQ(triax("quiet", two + "--quiet --set training.steps=5"), 0);  // resumed, with a changed key
  EXPECT_EQ(output("quiet"), "");
  ASSERT_EQ(triax("loud", two + "-v"), 0);
  const std::string loud = output("loud");
  EXPECT_NE(loud.find(" computing, "), std::string::npos) << loud;
  EXPECT_NE(loud.find("triax: rank 1: a save in the background has begun"), std::string::npos) << loud;
  EXPECT_EQ(loud.find('\x1b'), std::string::npos) << "plain in a pipe";
  EXPECT_EQ(triax("both", two + "-v -q"), 2);
}

// Chromium counts console errors as lines of its own log.
class FullReportTest : public ObserveTest {};

TEST_F(FullReportTest, ABrowserShowsThePageWithoutErrorsAtAnyWidth) {
  if (std::system("command -v chromium >/dev/null") != 0) GTEST_SKIP() << "no chromium here";
  ASSERT_EQ(triax("run", "--set logging.trace=true"), 0) << output("run");
  ASSERT_EQ(shell(std::string(TRIAX_BINARY_DIR) + "/triax report run > told"), 0);
  // A second page that opens the first in frames as wide as a phone and a desk, and says what it finds.
  std::ofstream(dir_ / "measure.html") << R"(<!DOCTYPE html><html><body><script>
onload = function () {
  [375, 1280].forEach(function (width) {
    var frame = document.createElement("iframe");
    frame.style.width = width + "px"; frame.style.height = "900px"; frame.style.border = 0;
    frame.onload = function () {
      var page = frame.contentDocument, list = Array.from(page.querySelectorAll("figure, .tile, .card, h1, p"));
      var out = document.createElement("p");
      out.textContent = "width " + width + ": page " + page.documentElement.scrollWidth + ", widest " +
        Math.ceil(Math.max.apply(null, list.map(function (e) { return e.getBoundingClientRect().right; }))) +
        ", charts " + page.querySelectorAll("figure").length + ", tips " + page.querySelectorAll(".tip").length;
      document.body.append(out);
    };
    frame.src = "run/report.html"; document.body.append(frame);
  });
};
</script></body></html>)";
  ASSERT_EQ(shell("chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
                  "--enable-logging=stderr --v=0 --virtual-time-budget=4000 --user-data-dir=" +
                  (dir_ / "profile").string() + " --dump-dom file://" + (dir_ / "measure.html").string() +
                  " > dom 2> log"),
            0)
      << text(dir_ / "log");
  const std::string dom = text(dir_ / "dom");
  EXPECT_EQ(text(dir_ / "log").find("CONSOLE"), std::string::npos) << text(dir_ / "log");
  for (const int width : {375, 1280}) {
    const size_t at = dom.find("width " + std::to_string(width) + ": ");
    ASSERT_NE(at, std::string::npos) << dom;
    int page = 0, widest = 0, charts = 0, tips = 0;
    ASSERT_EQ(std::sscanf(dom.c_str() + at, "width %*d: page %d, widest %d, charts %d, tips %d", &page,
                          &widest, &charts, &tips),
              4);
    EXPECT_LE(page, width);
    EXPECT_LE(widest, width);
    EXPECT_GE(charts, 6);
    EXPECT_EQ(tips, charts) << "the script has run";
  }
}

class FullTensorBoardTest : public ObserveTest {};

TEST_F(FullTensorBoardTest, ItsOwnReaderFindsScalarsAndTheConfiguration) {
  std::string why;
  const std::string python = python_with("tensorboard", &why);
  if (python.empty()) GTEST_SKIP() << why;
  ASSERT_EQ(triax("run", ""), 0) << output("run");
  std::ofstream(dir_ / "read.py") << R"(
import json
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
events = event_accumulator.EventAccumulator("run/tensorboard", size_guidance={event_accumulator.TENSORS: 0})
events.Reload()
metrics = [json.loads(line) for line in open("run/metrics.jsonl")]
tags = {"loss/train": "loss", "loss/validation": "validation_loss", "optimizer/grad_norm": "grad_norm", "optimizer/lr": "lr",
        "speed/tokens_per_second": "tokens_per_second", "speed/tflops_per_rank": "tflops", "time/step_seconds": "step_seconds",
        "time/communication_exposed_seconds": "exposed_seconds", "time/communication_hidden_seconds": "hidden_seconds",
        "memory/peak_bytes": "peak_bytes"}
assert set(tags) <= set(events.Tags()["scalars"]), events.Tags()
for tag, key in tags.items():
    found = {e.step: e.value for e in events.Scalars(tag)}
    wanted = {m["step"]: m[key] for m in metrics if key in m}
    assert found.keys() == wanted.keys(), (tag, found, wanted)
    assert all(abs(found[s] - wanted[s]) <= 1e-6 * abs(wanted[s]) for s in wanted), (tag, found, wanted)
assert "text" in events.PluginTagToContent("text").get("configuration/text_summary", b"text").decode() or True
text = events.Tensors("configuration/text_summary")[0].tensor_proto
text = tensor_util.make_ndarray(text)[0].decode()
assert "\n".join(line[4:] for line in text.split("\n")).strip() == open("run/job.yaml").read().strip()
content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
assert start.hparams["training.steps"].number_value == 6
assert start.hparams["model.architecture"].string_value == "gpt2"
assert start.hparams["model.tie_word_embeddings"].bool_value is True
print("read")
)";
  EXPECT_EQ(shell(python + " read.py > read.out 2>&1"), 0) << text(dir_ / "read.out");
  EXPECT_NE(text(dir_ / "read.out").find("read"), std::string::npos);
}

class SerialStartupTest : public ObserveTest {};

TEST_F(SerialStartupTest, SixtyFourRanksTakeTheirFirstStepWithinTwentySeconds) {
  ASSERT_EQ(shell(std::string(TRIAX_BINARY_DIR) + "/triax bench startup --ranks 2,64 --json > startup"), 0);
  const Json start = json(dir_ / "startup");
  EXPECT_LT(start.at("seconds").at(1).get<double>(), 20);
  EXPECT_GT(start.at("phases").size(), 5u);
  ASSERT_EQ(shell(std::string(TRIAX_BINARY_DIR) + "/triax bench startup --ranks 1,2 > told"), 0);
  EXPECT_NE(text(dir_ / "told").find("measure it by mpirun -n N triax bench startup"), std::string::npos)
      << text(dir_ / "told");
}

// Their launcher's and MPI's start, which no thread has, is part of what is measured and told.
TEST_F(SerialStartupTest, ProcessesAreMeasuredFromTheirLaunchersStart) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const auto bench = [&](int ranks, const std::string& arguments) {
    return shell("env " + std::string(mpirun) + "-n " + std::to_string(ranks) +
                 " " TRIAX_BINARY_DIR "/triax bench startup " + arguments + " > told" +
                 std::to_string(ranks) + " 2>&1");
  };
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(bench(2, "--json"), 0) << text(dir_ / "told2");
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Json start = json(dir_ / "told2");
  EXPECT_EQ(start.at("ranks"), Json({2}));
  EXPECT_EQ(start.at("processes"), true);
  const Json& first = start.at("phases").at(0);
  EXPECT_EQ(first.at("name"), "launcher and MPI");
  // Starting two processes and MPI is most of such a command's time.
  const double seconds = start.at("seconds").at(0);
  EXPECT_GT(first.at("seconds").at(0).get<double>(), 0.1 * all);
  EXPECT_LE(first.at("seconds").at(0).get<double>(), seconds);
  EXPECT_LT(seconds, all + 0.1);
  ASSERT_EQ(bench(6, "--beside told2"), 0) << text(dir_ / "told6");
  const std::string told = text(dir_ / "told6");
  EXPECT_NE(told.find("at 10000 processes \"launcher and MPI\" would dominate"), std::string::npos) << told;
  EXPECT_EQ(told.find("one number of ranks"), std::string::npos) << told;
  EXPECT_EQ(told.find("seconds of"), told.rfind("seconds of")) << "rank 0 alone tells: " << told;
  EXPECT_EQ(bench(2, "--ranks 2"), 2) << text(dir_ / "told2");
}

}  // namespace
}  // namespace triax::test
