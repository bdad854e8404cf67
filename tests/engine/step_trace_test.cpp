#include "engine/step_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/local_ranks.h"
#include "core/error.h"
#include "support/training.h"

namespace triax::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class StepTraceTest : public ::testing::Test {
 protected:
  StepTraceTest() : dir_(fs::temp_directory_path() / ("triax-trace-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
  }
  ~StepTraceTest() override { fs::remove_all(dir_); }

  static RunConfig job(const std::string& schedule, int virtual_stages) {
    RunConfig c;
    ModelConfig& m = c.model;
    m.vocab_size = 61, m.hidden_size = 16, m.num_hidden_layers = 4;
    m.num_attention_heads = m.num_key_value_heads = 2, m.intermediate_size = 32;
    m.max_position_embeddings = 8;
    c.training.steps = 1, c.training.global_batch_size = 8, c.training.micro_batch_size = 1;
    c.training.sequence_length = 8;
    c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 2;
    c.parallel.schedule = schedule, c.parallel.virtual_stages = virtual_stages;
    return c;
  }

  // One traced step on all ranks; returns the ledger of rank 0 for that step.
  std::map<std::pair<std::string, CommOp>, Recorder::Entry> train_traced(const RunConfig& config) {
    const Batches batches = random_batches(config, 1, 3);
    std::map<std::pair<std::string, CommOp>, Recorder::Entry> ledger;
    run_local_ranks(8, {}, [&](Communicator& world, int rank) {
      const auto device = make_cpu_device(1);
      Mesh mesh(grid_of(config), world, mesh_needs(config));
      Trace trace;
      Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
      trainer.initialise();
      trainer.load_batch(batches[0].data() + mesh.coordinate("dp") * trainer.rows_per_step() * 9);
      start_together(trace, world, true);
      trainer.set_trace(&trace);
      world.recorder().clear();
      trainer.step(1, {});
      trace.stop();
      trainer.set_trace(nullptr);
      if (rank == 0) ledger = world.recorder().ledger();
      write_trace(path_of(rank), trace, 7, mesh.grid(), rank, trainer.schedule().shape);
    });
    return ledger;
  }
  std::string path_of(int rank) const {
    return (dir_ / "traces" / "step-00000007" / fmt::format("rank-{:05}.json", rank)).string();
  }

  fs::path dir_;
};

TEST_F(StepTraceTest, WhatWasMeasuredIsTheScheduleInItsOrder) {
  for (const auto& [name, chunks] : {std::pair<const char*, int>{"interleaved", 2}, {"zb-h1", 1}}) {
    fs::remove_all(dir_);
    const RunConfig config = job(name, chunks);
    train_traced(config);
    const MeasuredStep step = read_traces(dir_.string());
    EXPECT_EQ(step.step, 7);
    const ScheduleShape shape{name, 2, chunks, 4};
    EXPECT_EQ(step.timeline.shape, shape);
    const Schedule schedule = make_schedule(shape);
    ASSERT_EQ(step.timeline.stages.size(), 2u);
    for (size_t stage = 0; stage < 2; ++stage) {
      std::vector<Action> planned, measured;
      for (const Action& a : schedule.stages[stage])
        if (is_compute(a.kind)) planned.push_back(a);
      double before = 0;
      for (const Span& span : step.timeline.stages[stage]) {
        measured.push_back(span.action);
        EXPECT_GE(span.start, before) << "work of a stage does not overlap";
        EXPECT_GE(span.end, span.start);
        before = span.end;
      }
      EXPECT_EQ(measured, planned) << name << ", stage " << stage;
    }
    EXPECT_GT(step.timeline.bubble, 0);
    EXPECT_LT(step.timeline.bubble, 1);
    // The last stage's first forward waits for the first stage's: the ranks' clocks are one.
    EXPECT_GE(step.timeline.stages[1][0].start, step.timeline.stages[0][0].end);
  }
}

TEST_F(StepTraceTest, TheFileIsAChromeTraceAndTellsEveryByte) {
  const auto ledger = train_traced(job("1f1b", 1));
  const Json file = Json::parse(std::ifstream(path_of(0)));
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> counted;
  std::set<std::string> phases;
  std::map<Json, int> open;
  for (const Json& event : file.at("traceEvents")) {
    const std::string kind = event.at("ph");
    EXPECT_EQ(event.at("pid"), 0);
    if (kind == "M") continue;
    ASSERT_TRUE(event.at("ts").is_number());
    if (kind == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0);
    }
    if (event.at("cat") == "step") phases.insert(event.at("name"));
    if (kind == "b") {
      ++open[event.at("id")];
      auto& [calls, bytes] = counted[{event.at("cat"), event.at("name")}];
      ++calls;
      bytes += event.at("args").at("bytes").get<int64_t>();
    }
    if (kind == "e") --open[event.at("id")];
  }
  for (const auto& [id, count] : open) EXPECT_EQ(count, 0) << id;
  EXPECT_EQ(phases, (std::set<std::string>{"zero gradients", "forward and backward", "reduce gradients",
                                           "gradient norm", "sums over all ranks", "update weights"}));
  for (const auto& [key, entry] : ledger) {
    const auto& [calls, bytes] = counted[{key.first, std::string(name_of(key.second))}];
    EXPECT_EQ(calls, entry.calls) << key.first << " " << name_of(key.second);
    EXPECT_EQ(static_cast<double>(bytes), entry.bytes) << key.first << " " << name_of(key.second);
  }
}

std::string refusal(const fs::path& path) {
  try {
    read_traces(path.string());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST_F(StepTraceTest, AFullDiskIsTheReasonGiven) {
  try {
    write_trace("/dev/full", Trace(), 1, grid_of(job("1f1b", 1)), 0, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  }
}

TEST_F(StepTraceTest, WhatIsMissingOrBrokenIsNamed) {
  EXPECT_NE(refusal(dir_).find("holds no traces"), std::string::npos);
  train_traced(job("gpipe", 1));
  EXPECT_EQ(refusal(dir_), "accepted");
  EXPECT_EQ(refusal(dir_ / "traces"), "accepted");
  EXPECT_EQ(refusal(dir_ / "traces" / "step-00000007"), "accepted");
  fs::remove(path_of(4));  // tp 0, dp 0, pp 1
  EXPECT_NE(refusal(dir_).find("the trace of stage 1 of 2 is missing"), std::string::npos) << refusal(dir_);
  std::ofstream(path_of(4)) << "{\"otherData\": {}}";
  EXPECT_NE(refusal(dir_).find("rank-00004.json is no trace"), std::string::npos) << refusal(dir_);
}

}  // namespace
}  // namespace triax::test
