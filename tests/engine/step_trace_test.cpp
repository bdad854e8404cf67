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
      const auto origin = start_together(trace, world, true);
      trainer.set_trace(&trace);
      world.recorder().clear();
      trainer.step(1, {});
      trace.stop();
      trainer.set_trace(nullptr);
      if (rank == 0) ledger = world.recorder().ledger();
      write_trace(path(), {7, origin, trace.spans()}, world, mesh.grid(), trainer.schedule().shape);
    });
    return ledger;
  }
  std::string path() const { return (dir_ / "traces" / "step-00000007.json").string(); }

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
  const Json file = Json::parse(std::ifstream(path()));
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> counted;
  std::set<std::string> phases;
  std::map<Json, int> open;
  for (const Json& event : file.at("traceEvents")) {
    const std::string kind = event.at("ph");
    if (event.at("pid") != 0 || kind == "M" || kind == "s" || kind == "f") continue;
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

// What a viewer relies on: every rank is there, times go up, what lies on a thread is beside or inside of
// each other, and each arrow has two ends that lie in slices.
TEST_F(StepTraceTest, ThreadsNestAndArrowsLeadFromSendsToReceives) {
  for (const auto& [name, chunks] : {std::pair<const char*, int>{"interleaved", 2}, {"zb-h1", 1}}) {
    train_traced(job(name, chunks));
    const Json file = Json::parse(std::ifstream(path()));
    std::map<int, std::string> names;
    std::map<int, double> latest;
    std::map<std::pair<int, int>, std::vector<double>> open;  // ends of the slices around, by thread
    struct End {
      int rank;
      double time;
    };
    std::map<int64_t, End> sends;
    std::set<int64_t> pairs;
    int received = 0;
    for (const Json& event : file.at("traceEvents")) {
      const int rank = event.at("pid");
      const std::string kind = event.at("ph");
      if (kind == "M") {
        if (event.at("name") == "process_name") names[rank] = event.at("args").at("name");
        continue;
      }
      const double time = event.at("ts");
      EXPECT_GE(time, latest[rank]);
      latest[rank] = time;
      auto& ends = open[{rank, event.at("tid").get<int>()}];
      while (kind == "X" && !ends.empty() && ends.back() <= time) ends.pop_back();
      if (kind == "X") {
        const double end = time + event.at("dur").get<double>();
        EXPECT_TRUE(ends.empty() || end <= ends.back() + 0.0015) << event;
        ends.push_back(end);
      }
      if (kind == "b") {
        EXPECT_TRUE(pairs.insert(event.at("id").get<int64_t>()).second) << "an id of the whole file";
      }
      if (kind == "s") {
        EXPECT_TRUE(sends.try_emplace(event.at("id").get<int64_t>(), End{rank, time}).second);
      }
      if (kind == "f") ++received;
    }
    EXPECT_EQ(names.size(), 8u);
    EXPECT_EQ(names[5], "rank 5, tp 1, dp 0, pp 1");
    // Two stages, four micro-batches, both ways: one boundary, or three where there are two chunks each.
    EXPECT_EQ(sends.size(), 4u * 2 * 4 * (2 * chunks - 1));
    EXPECT_EQ(static_cast<size_t>(received), sends.size());
    for (const Json& event : file.at("traceEvents")) {
      if (event.at("ph") != "f") continue;
      const auto send = sends.find(event.at("id").get<int64_t>());
      ASSERT_NE(send, sends.end());
      EXPECT_EQ((send->second.rank + 4) % 8, event.at("pid").get<int>());  // the other stage, same tp and dp
      EXPECT_LE(send->second.time, event.at("ts").get<double>());
    }
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

TEST_F(StepTraceTest, WhyItCanNotBeWrittenIsTold) {
  std::ofstream(dir_) << "in the way";
  try {
    const auto world = make_self_communicator({});
    write_trace(path(), {}, *world, Grid({{"tp", 1}}), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Not a directory"), std::string::npos) << error.what();
  }
}

TEST_F(StepTraceTest, WhatIsMissingOrBrokenIsNamed) {
  EXPECT_NE(refusal(dir_).find("holds no trace"), std::string::npos);
  train_traced(job("gpipe", 1));
  EXPECT_EQ(refusal(dir_), "accepted");
  EXPECT_EQ(refusal(dir_ / "traces"), "accepted");
  EXPECT_EQ(refusal(path()), "accepted");
  Json file = Json::parse(std::ifstream(path()));
  Json::array_t events;
  for (const Json& event : file["traceEvents"])
    if (event.at("pid") != 4) events.push_back(event);  // tp 0, dp 0, pp 1
  file["traceEvents"] = events;
  std::ofstream(path()) << file;
  EXPECT_NE(refusal(dir_).find("the trace of stage 1 of 2 is missing"), std::string::npos) << refusal(dir_);
  std::ofstream(path()) << "{\"otherData\": {}}";
  EXPECT_NE(refusal(dir_).find("step-00000007.json is no trace"), std::string::npos) << refusal(dir_);
}

}  // namespace
}  // namespace triax::test
