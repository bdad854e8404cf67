// Generation with a key-value cache: against the training path, against itself without a cache, and on grids.

#include "engine/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <mutex>

#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

struct Kind {
  const char* name;
  Architecture architecture;
  int64_t kv_heads;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

/// Long enough for three blocks of the cache, and for a prompt in two pieces.
RunConfig job_of(const Kind& kind, int tensor = 1, int pipeline = 1) {
  RunConfig config = small_job(kind.architecture, 1);
  config.model.num_key_value_heads = kind.kv_heads;
  config.model.max_position_embeddings = 300;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  return config;
}

std::vector<int32_t> random_ids(const RunConfig& config, int64_t n) {
  const RandomStream stream(7, "test prompt");
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(stream.below(static_cast<uint64_t>(config.model.vocab_size), i)));
  return ids;
}

using RankBody = std::function<void(InferenceModel& model, Mesh& mesh)>;

/// Runs `body` on the job's ranks, with a model of the seed's initial weights.
void on_ranks(const RunConfig& config, const InferenceShape& shape, const RankBody& body) {
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  options.check_order = true;
  run_local_ranks(world_size(config), options, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    const InferencePlan plan = plan_inference(config, rank, shape);
    InferenceModel model(config, mesh, *device, cpu_kernels(), shape, plan.scratch_bytes);
    model.params().initialise(static_cast<uint64_t>(config.seed));
    body(model, mesh);
    model.finish();
    for (size_t i = 0; i < plan.memory.size(); ++i)
      EXPECT_EQ(plan.memory[i].bytes, model.memory()[i].bytes) << plan.memory[i].name;
  });
}

/// Logits after every token of `ids`, which are given `step` at a time (only the last of each is asked for).
using Rows = std::map<int64_t, std::vector<float>>;
Rows logits_of(const RunConfig& config, const std::vector<int32_t>& ids, int64_t step, bool from_the_start) {
  Rows rows;
  std::mutex mutex;
  const int64_t n = static_cast<int64_t>(ids.size());
  on_ranks(config, {1, from_the_start ? n : step, n}, [&](InferenceModel& model, Mesh& mesh) {
    std::vector<float> logits(mesh.last_stage() ? static_cast<size_t>(config.model.vocab_size) : 0);
    for (int64_t at = 0; at < n; at += step) {
      const int64_t end = std::min(n, at + step), begin = from_the_start ? 0 : at;
      model.extend({ids.data() + begin, static_cast<size_t>(end - begin)}, begin, logits);
      const std::lock_guard lock(mutex);
      if (mesh.last_stage() && mesh.coordinate("tp") == 0) rows[end - 1] = logits;
    }
  });
  return rows;
}

Generated text_of(const RunConfig& config, const GenerateRequest& request, const StopFlag& stop = {}) {
  Generated text;
  std::vector<int32_t> told;
  on_ranks(config, shape_of(config, request), [&](InferenceModel& model, Mesh& mesh) {
    const auto emit = [&](int, int32_t id) { told.push_back(id); };  // on rank 0 alone
    Generated mine = continue_prompt(config, model, mesh, request, stop, emit);
    if (mesh.rank() == 0) text = std::move(mine);
  });
  std::vector<int32_t> all;
  for (const Continuation& sample : text.samples) all.insert(all.end(), sample.ids.begin(), sample.ids.end());
  EXPECT_EQ(told, all);
  return text;
}

class Generation : public ::testing::TestWithParam<Kind> {};

// The loss of a text is a function of its logits: the training path's and the cache's must agree.
TEST_P(Generation, LogitsGiveTheLossOfTheTrainingPath) {
  RunConfig config = job_of(GetParam());
  config.training.sequence_length = 150;
  config.training.global_batch_size = config.training.micro_batch_size = 1;
  const std::vector<int32_t> ids = random_ids(config, 151);
  double trained = 0, cached = 0;
  run_local_ranks(1, {}, [&](Communicator& world, int) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, 0).scratch_bytes);
    trainer.initialise();
    trainer.state_loaded();
    trainer.load_batch(ids.data());
    ExactSum sum;
    trainer.evaluate(sum);
    trained = sum.value();
  });
  const Rows rows = logits_of(config, {ids.begin(), ids.end() - 1}, 1, false);
  ASSERT_EQ(rows.size(), 150u);
  for (const auto& [position, logits] : rows) {
    double sum = 0;
    const double most = *std::max_element(logits.begin(), logits.end());
    for (const float x : logits) sum += std::exp(x - most);
    cached += std::log(sum) + most - logits[static_cast<size_t>(ids[static_cast<size_t>(position) + 1])];
  }
  EXPECT_NEAR(cached / trained, 1, 1e-6);
}

// A cache changes no bit: not by its pieces, and not against computing everything again.
TEST_P(Generation, CachedLogitsHaveTheBitsOfRecomputedOnes) {
  const RunConfig config = job_of(GetParam());
  const std::vector<int32_t> ids = random_ids(config, 140);
  const Rows again = logits_of(config, ids, 20, true);
  for (const int64_t step : {1, 4, 20}) {
    const Rows cached = logits_of(config, ids, step, false);
    for (const auto& [position, logits] : again) EXPECT_EQ(cached.at(position), logits) << position;
  }
}

TEST_P(Generation, PipelineCutsChangeNoBitAndTensorCutsRoundAlone) {
  const std::vector<int32_t> ids = random_ids(job_of(GetParam()), 80);
  const Rows one = logits_of(job_of(GetParam()), ids, 8, false);
  EXPECT_EQ(logits_of(job_of(GetParam(), 1, 2), ids, 8, false), one);
  for (const int tensor : {2, 4}) {
    const Rows cut = logits_of(job_of(GetParam(), tensor), ids, 8, false);
    EXPECT_EQ(logits_of(job_of(GetParam(), tensor, 2), ids, 8, false), cut);
    for (const auto& [position, logits] : one)
      for (size_t v = 0; v < logits.size(); ++v)
        ASSERT_NEAR(cut.at(position)[v], logits[v], 1e-5) << tensor << " at " << position;
  }
}

TEST_P(Generation, EveryGridWritesTheSameText) {
  GenerateRequest request;
  request.prompt = random_ids(job_of(GetParam()), 40);
  request.tokens = 30;
  for (const double temperature : {0.0, 0.8}) {
    request.sampling.temperature = temperature;
    const std::vector<int32_t> one = text_of(job_of(GetParam()), request).samples.at(0).ids;
    ASSERT_EQ(one.size(), 30u);
    for (const auto& [tensor, pipeline] : {std::pair{1, 2}, {2, 1}, {2, 2}, {4, 1}, {4, 2}})
      EXPECT_EQ(text_of(job_of(GetParam(), tensor, pipeline), request).samples.at(0).ids, one)
          << "tensor " << tensor << ", pipeline " << pipeline << ", temperature " << temperature;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Generation,
                         ::testing::Values(Kind{"gpt2", Architecture::gpt2, 12},
                                           Kind{"llama", Architecture::llama, 12},
                                           Kind{"gqa", Architecture::llama, 4},
                                           Kind{"mqa", Architecture::llama, 1}),
                         [](const auto& info) { return std::string(info.param.name); });

const Kind gqa{"gqa", Architecture::llama, 4};

TEST(GenerationEnds, AtTheModelsLastPosition) {
  RunConfig config = job_of(gqa);
  config.model.max_position_embeddings = 70;
  GenerateRequest request;
  request.prompt = random_ids(config, 60);
  request.tokens = 100;
  const Continuation text = text_of(config, request).samples.at(0);
  EXPECT_EQ(text.ids.size(), 10u);
  EXPECT_EQ(text.end, TextEnd::positions);
  request.prompt = random_ids(config, 70);
  EXPECT_THROW(check_prompt(config, request), Error);
}

TEST(GenerationEnds, WithTheEndOfTextOrASignal) {
  const RunConfig config = job_of(gqa, 2, 2);
  GenerateRequest request;
  request.prompt = random_ids(config, 5);
  request.tokens = 20;
  const std::vector<int32_t> whole = text_of(config, request).samples.at(0).ids;
  request.end = whole.at(7);
  const size_t first = static_cast<size_t>(std::find(whole.begin(), whole.end(), whole[7]) - whole.begin());
  const Continuation text = text_of(config, request).samples.at(0);
  EXPECT_EQ(text.end, TextEnd::end_of_text);
  EXPECT_EQ(text.ids, std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<int64_t>(first)));
  StopFlag stop;
  stop.signal = SIGINT;
  EXPECT_EQ(text_of(config, request, stop).samples.at(0).end, TextEnd::interrupted);
}

// The second sample begins where the prompt ends, whatever the first one has left in the cache.
TEST(GenerationSamples, DependOnSeedAndNumberAlone) {
  const RunConfig config = job_of(gqa);
  GenerateRequest request;
  request.prompt = random_ids(config, 30);
  request.tokens = 25;
  request.samples = 3;
  request.sampling.temperature = 0;
  const Generated same = text_of(config, request);
  EXPECT_EQ(same.samples.at(1).ids, same.samples.at(0).ids);
  request.sampling.temperature = 1;
  const Generated text = text_of(config, request);
  EXPECT_NE(text.samples.at(1).ids, text.samples.at(0).ids);
  const Generated again = text_of(config, request);
  for (size_t s = 0; s < 3; ++s) EXPECT_EQ(again.samples.at(s).ids, text.samples.at(s).ids);
  request.seed = 2;
  EXPECT_NE(text_of(config, request).samples.at(0).ids, text.samples.at(0).ids);
  request.vocabulary = 5;
  const Generated few = text_of(config, request);
  for (const int32_t id : few.samples.at(2).ids) EXPECT_LT(id, 5);
}

TEST(GenerationBf16, CachesInBf16) {
  RunConfig config = job_of(gqa);
  const std::vector<int32_t> ids = random_ids(config, 90);
  const Rows exact = logits_of(config, ids, 10, false);
  config.training.precision = "bf16";
  const Rows cached = logits_of(config, ids, 10, false), again = logits_of(config, ids, 10, true);
  EXPECT_EQ(cached, again);
  EXPECT_EQ(logits_of(config, ids, 1, false).at(89), cached.at(89));
  config.parallel.pipeline = 2;
  EXPECT_EQ(logits_of(config, ids, 10, false), cached);
  for (const auto& [position, logits] : exact)
    for (size_t v = 0; v < logits.size(); ++v)
      ASSERT_NEAR(cached.at(position)[v], logits[v], 0.1) << position;
}

// At a context of 256 a token costs one row instead of 256; both are measured in turns.
TEST(SerialGeneration, ACacheSavesMostOfTheWork) {
  RunConfig config = job_of(gqa);
  config.model.hidden_size = 192;
  config.model.intermediate_size = 384;
  const std::vector<int32_t> ids = random_ids(config, 256);
  double cached = 1e9, again = 1e9;
  on_ranks(config, {1, 256, 256}, [&](InferenceModel& model, Mesh&) {
    std::vector<float> logits(static_cast<size_t>(config.model.vocab_size));
    const auto seconds = [&](std::span<const int32_t> tokens, int64_t position) {
      const auto start = std::chrono::steady_clock::now();
      model.extend(tokens, position, logits);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    for (int turn = 0; turn < 8; ++turn) {
      again = std::min(again, seconds(ids, 0));
      cached = std::min(cached, seconds({&ids.back(), 1}, 255));
    }
  });
  RecordProperty("ratio", std::to_string(again / cached));
  EXPECT_GT(again / cached, 8);
}

}  // namespace
}  // namespace triax::test
