// Losses of files: every token once, whatever the windows and the grid; the training path's where it reads
// the same.

#include "engine/evaluate.h"

#include <gtest/gtest.h>

#include <csignal>

#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

class Numbers final : public TokenSource {
 public:
  Numbers(std::vector<int32_t> ids, std::string name) : ids_(std::move(ids)), name_(std::move(name)) {}
  int64_t tokens() const override { return static_cast<int64_t>(ids_.size()); }
  void read(int64_t first, std::span<int32_t> out) const override {
    std::copy_n(ids_.begin() + first, out.size(), out.begin());
  }
  int64_t vocabulary() const override { return 0; }
  const std::string& name() const override { return name_; }
  std::string fingerprint() const override { return name_; }

 private:
  std::vector<int32_t> ids_;
  std::string name_;
};

std::shared_ptr<const TokenSource> numbers(int64_t n, const std::string& name) {
  const RandomStream stream(3, name);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(stream.below(61, static_cast<uint64_t>(i))));
  return std::make_shared<Numbers>(ids, name);
}

RunConfig job_of(int tensor = 1, int pipeline = 1, int data = 1) {
  RunConfig config = small_job(Architecture::llama, 1);
  config.model.num_key_value_heads = 4;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.training.micro_batch_size = 3;
  return config;
}

Evaluation evaluation_of(const RunConfig& config, const EvaluateRequest& request, const StopFlag& stop = {}) {
  Evaluation result;
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  options.check_order = true;
  run_local_ranks(world_size(config), options, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    const InferenceShape shape{config.training.micro_batch_size, request.windows.sequence, 0};
    const InferencePlan plan = plan_inference(config, rank, shape);
    InferenceModel model(config, mesh, *device, cpu_kernels(), shape, plan.scratch_bytes);
    model.params().initialise(static_cast<uint64_t>(config.seed));
    const Evaluation mine = evaluate(config, model, mesh, request, stop, {});
    for (size_t i = 0; i < plan.memory.size(); ++i) EXPECT_EQ(plan.memory[i].bytes, mine.memory[i].bytes);
    if (rank == 0) result = mine;
  });
  return result;
}

// By hand: which window counts which target.
TEST(Windows, CountEveryTokenButTheFirstOnce) {
  for (int64_t tokens = 2; tokens <= 40; ++tokens)
    for (int64_t sequence = 1; sequence <= 9; ++sequence)
      for (int64_t stride = 1; stride <= sequence; ++stride) {
        std::vector<int> counted(static_cast<size_t>(tokens));
        const Windows cut{sequence, stride, 0};
        for (int64_t w = 0; w < window_count(tokens, cut); ++w) {
          const Window window = window_at(w, tokens, cut);
          ASSERT_EQ(window.begin, w * stride);
          ASSERT_LE(window.inputs, sequence);
          ASSERT_LT(window.first_counted, window.inputs);
          for (int64_t i = window.first_counted; i < window.inputs; ++i)
            ++counted.at(static_cast<size_t>(window.begin + i + 1));
        }
        ASSERT_EQ(counted[0], 0);
        for (int64_t t = 1; t < tokens; ++t)
          ASSERT_EQ(counted[static_cast<size_t>(t)], 1)
              << tokens << " " << sequence << " " << stride << " " << t;
      }
}

// Files of whole samples: what a training job's validation sums, bit for bit.
TEST(Evaluate, WholeSamplesAreTheTrainingPaths) {
  RunConfig config = job_of();
  const int64_t s = config.training.sequence_length, rows = config.training.global_batch_size;
  const auto file = numbers(rows * s + 1, "whole");
  double trained = 0;
  run_local_ranks(1, {}, [&](Communicator& world, int) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, 0).scratch_bytes);
    trainer.initialise();
    trainer.state_loaded();
    std::vector<int32_t> batch(static_cast<size_t>(rows * (s + 1)));
    for (int64_t r = 0; r < rows; ++r)
      file->read(r * s,
                 std::span(batch).subspan(static_cast<size_t>(r * (s + 1)), static_cast<size_t>(s + 1)));
    trainer.load_batch(batch.data());
    ExactSum sum;
    trainer.evaluate(sum);
    trained = sum.value();
  });
  const Evaluation ours = evaluation_of(config, {{file}, {s, s, 0}, nullptr});
  EXPECT_EQ(ours.total.nats, trained);
  EXPECT_EQ(ours.total.targets, rows * s);
}

// Odd lengths: a short last window, data ranks without one, a file shorter than a window.
TEST(Evaluate, EveryGridFindsTheSameLosses) {
  EvaluateRequest request{{numbers(101, "a"), numbers(7, "b"), numbers(2, "c")}, {12, 12, 0}, nullptr};
  request.tokenizer = open_tokenizer("bytes");
  for (const int64_t stride : {12, 5}) {
    request.windows.stride = stride;
    const Evaluation one = evaluation_of(job_of(), request);
    ASSERT_EQ(one.files.size(), 3u);
    EXPECT_EQ(one.files[0].targets, 100);
    EXPECT_EQ(one.files[1].targets, 6);
    EXPECT_EQ(one.files[2].targets, 1);
    EXPECT_EQ(one.total.targets, 107);
    EXPECT_EQ(one.total.bytes, 107);
    EXPECT_NEAR(one.total.loss(), std::log(61.0), 2);
    for (const auto& [tensor, pipeline, data] :
         {std::tuple{1, 2, 1}, {1, 1, 3}, {1, 2, 2}, {2, 1, 1}, {4, 2, 1}}) {
      const Evaluation grid = evaluation_of(job_of(tensor, pipeline, data), request);
      for (size_t f = 0; f < 3; ++f) {
        EXPECT_EQ(grid.files[f].targets, one.files[f].targets);
        if (tensor == 1)
          EXPECT_EQ(grid.files[f].nats, one.files[f].nats) << pipeline << " " << data;
        else
          EXPECT_NEAR(grid.files[f].nats / one.files[f].nats, 1, 1e-5) << tensor << " " << pipeline;
      }
    }
  }
}

// A stride of one: each token but those of the first window has S tokens before it. By single windows.
TEST(Evaluate, AStrideGivesContext) {
  const RunConfig config = job_of();
  const auto file = numbers(20, "stride");
  const Evaluation ours = evaluation_of(config, {{file}, {12, 1, 0}, nullptr});
  std::vector<int32_t> ids(20);
  file->read(0, ids);
  double sum =
      evaluation_of(config, {{std::make_shared<Numbers>(std::vector(ids.begin(), ids.begin() + 13), "f")},
                             {12, 12, 0},
                             nullptr})
          .total.nats;
  for (int64_t t = 13; t < 20; ++t) {  // the last target's loss: the whole window's less the one before it
    const auto part = [&](int64_t end) {
      return evaluation_of(
                 config,
                 {{std::make_shared<Numbers>(std::vector(ids.begin() + t - 12, ids.begin() + end), "p")},
                  {12, 12, 0},
                  nullptr})
          .total.nats;
    };
    sum += part(t + 1) - part(t);
  }
  EXPECT_NEAR(ours.total.nats / sum, 1, 1e-6);
}

TEST(Evaluate, SaysWhichTokenTheModelDoesNotHave) {
  const auto file = std::make_shared<Numbers>(std::vector<int32_t>{1, 2, 61, 3}, "data/odd");
  try {
    evaluation_of(job_of(), {{file}, {12, 12, 0}, nullptr});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("data/odd: token 61 at position 2"), std::string::npos) << e.what();
  }
}

TEST(Evaluate, ASignalEndsIt) {
  StopFlag stop;
  stop.signal = SIGINT;
  EXPECT_TRUE(evaluation_of(job_of(2, 2), {{numbers(50, "x")}, {12, 12, 0}, nullptr}, stop).interrupted);
}

}  // namespace
}  // namespace triax::test
