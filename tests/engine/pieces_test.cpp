// Of the feed-forward half a piece of the tokens is there at a time, and no bit depends on it.

#include <gtest/gtest.h>

#include "engine/inference.h"
#include "engine/job_plan.h"
#include "support/sanitizer.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

/// 1600 tokens in a micro-batch: three pieces in fp32, two in bf16 where that is multiplied in pairs.
RunConfig job(Architecture architecture) {
  RunConfig config = small_job(architecture, 2);
  config.model.num_hidden_layers = 2;
  config.model.max_position_embeddings = 800;
  config.model.intermediate_size = 384;
  config.training.sequence_length = 800;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 4;
  return config;
}

class PiecesTest : public ::testing::TestWithParam<Architecture> {
 protected:
  void expect_same_bits(const RunConfig& config, const std::string& what) {
    Kernels whole = cpu_kernels();
    whole.product_depth = nullptr;
    const Batches batches = random_batches(config, sanitized ? 1 : 2, 43);
    const TrainingRecord cut = train(config, batches);
    expect_identical(cut, train(config, batches, {}, 1, &whole), what);
    EXPECT_EQ(cut.planned_peak, cut.measured_peak) << what;
  }
};

TEST_P(PiecesTest, ChangeNoBit) {
  const RunConfig one = job(GetParam());
  const int64_t tokens = one.training.micro_batch_size * one.training.sequence_length;
  for (const DType type : {DType::f32, DType::bf16})
    ASSERT_LT(cpu_kernels().product_depth(type, tokens), tokens);
  expect_same_bits(one, "one rank");
  RunConfig other = one;
  other.training.precision = "bf16";
  expect_same_bits(other, "bf16");
  other = one;
  other.model.hidden_dropout = 0.1;
  expect_same_bits(other, "dropout");
  other = one;
  other.training.recompute = "full";
  expect_same_bits(other, "full recomputation");
  other = one;
  other.parallel.tensor = 2;
  other.parallel.sequence_parallel = true;
  expect_same_bits(other, "sequence-parallel");
  other = one;
  other.parallel.pipeline = 2;
  other.parallel.schedule = "zb-h1";
  expect_same_bits(other, "zb-h1");
}

// A third of the activation is there, and nothing else as wide: at other times one activation between layers
// is in a layer's memory, and one beside the logits in the head's.
TEST_P(PiecesTest, NoActivationIsThereAsAWhole) {
  RunConfig config = job(GetParam());
  config.training.recompute = "none";
  const size_t tokens = 1600, width = 384, hidden = 48;
  const size_t piece = 534 * width * sizeof(float), between = tokens * hidden * sizeof(float);
  const TrainingRecord record = train(config, random_batches(config, 1, 44));
  const size_t head = between + (61 + 5) * tokens * sizeof(float);  // logits, and a few numbers of a token
  EXPECT_LE(record.scratch, std::max(piece, head) + 8192);
  EXPECT_LT(record.scratch, tokens * width * sizeof(float) / 2);
}

// Where neither a piece nor the logits are large: a norm's output that is computed again lies where its
// gradient is to be written, so that there is one activation between layers in a layer's memory, not two.
TEST(Pieces, ANormsOutputLiesWhereItsGradientWill) {
  RunConfig config = job(Architecture::llama);
  config.model.intermediate_size = 96;
  config.model.vocab_size = 16;
  config.training.recompute = "none";
  const size_t tokens = 1600, between = tokens * 48 * sizeof(float);
  const size_t head = between + (16 + 5) * tokens * sizeof(float);
  ASSERT_LT(534 * 96 * sizeof(float), head);
  EXPECT_LE(train(config, random_batches(config, 1, 45)).scratch, head + 8192);
}

// A file's last pass is smaller than those before it, and cut otherwise: of 800 tokens half are there at a
// time, of 700 all.
TEST_P(PiecesTest, AnEvaluationTakesWhatIsPlanned) {
  RunConfig config = job(GetParam());
  config.training.sequence_length = 100;
  config.training.micro_batch_size = 8;
  const int64_t sequence = config.training.sequence_length, batch = config.training.micro_batch_size;
  ASSERT_LT(cpu_kernels().product_depth(DType::f32, 8 * sequence),
            cpu_kernels().product_depth(DType::f32, 7 * sequence));
  const InferenceShape shape{batch, sequence, 0};
  const std::vector<int32_t> ids(static_cast<size_t>(batch * sequence), 1);
  run_local_ranks(1, {}, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, inference_needs(config));
    const InferencePlan plan = plan_inference(config, rank, shape);
    InferenceModel model(config, mesh, *device, cpu_kernels(), shape, plan.scratch_bytes);
    model.params().initialise(1);
    ExactSum loss;
    for (int64_t rows = batch; rows > 0; --rows) model.add_loss(ids.data(), ids.data(), rows, sequence, loss);
    model.finish();
    EXPECT_EQ(model.scratch_high_water(), plan.scratch_bytes);
  });
}

// GPT-2's logits are there for 384 of 768 tokens at a time, and for all of 512.
TEST(Pieces, ASmallerEvaluationOfALargeVocabularyIsPlannedForToo) {
  RunConfig config = job(Architecture::gpt2);
  config.model.vocab_size = 50257;
  const auto planned = [&](int64_t batch) {
    return plan_inference(config, 0, {batch, 256, 0}).scratch_bytes;
  };
  EXPECT_GE(planned(2), size_t{512 * 50257} * sizeof(float));
  EXPECT_GE(planned(3), planned(2));
}

// A GPU takes all tokens at once, wherever it is planned for.
TEST_P(PiecesTest, AreNotPlannedForAnotherDevice) {
  const RunConfig config = job(GetParam());
  const DeviceModel a100 = device_named("a100");
  const size_t here = plan_job(config).stages.at(0).scratch_bytes;
  EXPECT_GT(plan_job(config, &a100).stages.at(0).scratch_bytes, here);
  EXPECT_GE(plan_job(config, &a100).stages.at(0).scratch_bytes, size_t{1600 * 384} * sizeof(float));
}

// As the GPU's kernels take memory, with their workspace and their fused activation, whatever the job's
// device.
TEST_P(PiecesTest, OfANamedGpuArePlannedAsItsKernelsTakeThem) {
  RunConfig config = job(GetParam());
  config.training.precision = "bf16";
  const DeviceModel a100 = device_named("a100");
  const size_t named = plan_job(config, &a100).stages.at(0).scratch_bytes;
  config.training.device = "cuda";
  EXPECT_EQ(named, plan_job(config).stages.at(0).scratch_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, PiecesTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
