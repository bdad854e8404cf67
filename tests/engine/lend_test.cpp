// Activations that lie in the memory of gradients which are written later (Chunk::plan): nothing is computed
// from what has been overwritten.

#include <gtest/gtest.h>

#include "engine/job.h"
#include "support/sanitizer.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

/// 256 tokens on a data rank: a layer keeps several times as many bytes as its gradients have, so that what
/// is lent is full.
RunConfig job(Architecture architecture) {
  RunConfig config = small_job(architecture, 2);
  config.model.num_hidden_layers = 4;
  config.model.max_position_embeddings = 64;
  config.training.sequence_length = 64;
  config.training.micro_batch_size = config.training.global_batch_size = 4;
  config.parallel.reduce_bucket_size = 20000;
  return config;
}

size_t lent(const RunConfig& config, int rank = 0) {
  return plan_rank(config, rank).lent_bytes;
}

// The same with memory of its own for activations: where weight halves come later, nothing is lent, and no
// bit depends on the schedule.
RunConfig not_lent(RunConfig config) {
  config.parallel.schedule = "zb-h1";
  return config;
}

class LendTest : public ::testing::TestWithParam<Architecture> {
 protected:
  void expect_every_bit(const RunConfig& config, const std::string& what) {
    for (int rank = 0; rank < world_size(config); ++rank) {
      EXPECT_GT(lent(config, rank), 0U) << what << ", rank " << rank;
      EXPECT_EQ(lent(not_lent(config), rank), 0U) << what << ", rank " << rank;
    }
    const Batches batches = random_batches(config, sanitized ? 1 : 3, 51);
    const TrainingRecord record = train(config, batches);
    expect_identical(record, train(not_lent(config), batches), what);
    EXPECT_EQ(record.planned_peak, record.measured_peak) << what;
  }
  // Two micro-batches borrow nothing; their sum differs by rounding.
  void expect_as_two_micro_batches(const RunConfig& config, const std::string& what, double bound = 2e-6) {
    RunConfig two = config;
    two.training.micro_batch_size /= 2;
    EXPECT_GT(lent(config), 0U) << what;
    EXPECT_EQ(lent(two), 0U) << what;
    const Batches batches = random_batches(config, sanitized ? 1 : 3, 51);
    const TrainingRecord whole = train(config, batches), parts = train(two, batches);
    std::string worst;
    EXPECT_LT(gradient_error(whole.first_gradients, parts.first_gradients, &worst), bound)
        << what << ": " << worst;
    for (size_t s = 0; s < batches.size(); ++s)
      EXPECT_NEAR(whole.losses[s] / parts.losses[s], 1, bound) << what << ", step " << s + 1;
    EXPECT_EQ(whole.planned_peak, whole.measured_peak) << what;
  }
};

TEST_P(LendTest, IsWhatSeveralMicroBatchesCompute) {
  const RunConfig one = job(GetParam());
  expect_as_two_micro_batches(one, "one rank");
  RunConfig other = one;
  other.training.recompute = "selective";
  expect_as_two_micro_batches(other, "selective recomputation");
  other.training.recompute = "full";
  expect_as_two_micro_batches(other, "full recomputation");
  other = one;
  other.parallel.tensor = 2;
  other.parallel.sequence_parallel = true;
  expect_as_two_micro_batches(other, "sequence-parallel");
  other = one;
  other.parallel.pipeline = 2;
  other.parallel.data = 2;
  other.training.global_batch_size = 8;
  expect_as_two_micro_batches(other, "two stages, two data ranks");
  other.parallel.pipeline = 1;
  other.parallel.zero_stage = 0;
  expect_as_two_micro_batches(other, "two data ranks, ZeRO-0");
  other = one;
  other.training.precision = "bf16";
  expect_as_two_micro_batches(other, "bf16", 2e-2);
}

TEST_P(LendTest, HasEveryBitOfActivationsWithMemoryOfTheirOwn) {
  const RunConfig one = job(GetParam());
  expect_every_bit(one, "one rank");
  RunConfig other = one;
  other.training.precision = "bf16";
  expect_every_bit(other, "bf16");
  other = one;
  other.model.hidden_dropout = 0.1;
  other.training.recompute = "selective";
  expect_every_bit(other, "selective recomputation with dropout");
  other.parallel.tensor = 2;
  other.training.recompute = "full";
  expect_every_bit(other, "full recomputation with dropout");
  other.training.partition_activations = true;
  expect_every_bit(other, "inputs in parts");
  other = one;
  other.parallel.tensor = other.parallel.data = 2;
  other.parallel.sequence_parallel = true;
  other.training.global_batch_size = 8;
  expect_every_bit(other, "sequence-parallel on two data ranks");
  other.parallel.overlap_comm = false;
  other.parallel.zero_shard_ranks = 1;
  expect_every_bit(other, "and no overlap, slices on one rank");
  other.parallel.zero_stage = 0;
  other.parallel.zero_shard_ranks = 0;
  other.parallel.pipeline = 2;
  expect_every_bit(other, "and two stages, ZeRO-0");
}

// Buckets are filled up to a multiple of 16 elements for each data rank, and so is the one that a tied table
// closes: what the head clears there in its forward holds no activation. With few tokens a layer's input,
// which unlike norms' means nobody computes again, comes first in what is lent.
TEST_P(LendTest, FilledUpBucketsOfATiedTable) {
  for (const int data : {5, 7}) {
    RunConfig config = job(GetParam());
    config.model.tie_word_embeddings = true;
    config.parallel.data = data;
    config.parallel.reduce_bucket_size = 500;
    config.training.sequence_length = 16;
    config.training.micro_batch_size = 2;
    config.training.global_batch_size = 2 * data;
    ASSERT_NE(config.model.vocab_size * config.model.hidden_size % (16 * data), 0);
    expect_every_bit(config, fmt::format("{} data ranks", data));
  }
}

// An evaluation writes over the gradients of the step before it, and the step after it does not see that.
TEST_P(LendTest, EvaluationsBetweenStepsChangeNothing) {
  RunConfig config = job(GetParam());
  config.parallel.tensor = config.parallel.data = 2;
  config.training.global_batch_size = 8;
  ASSERT_GT(lent(config), 0U);
  const Batches batches = random_batches(config, 3, 52);
  const auto run = [&](bool evaluates) {
    std::vector<double> seen;
    run_local_ranks(world_size(config), {}, [&](Communicator& world, int rank) {
      const auto device = make_cpu_device(1);
      Mesh mesh(grid_of(config), world, mesh_needs(config));
      Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
      trainer.initialise();
      for (size_t s = 0; s < batches.size(); ++s) {
        trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() *
                                                   (config.training.sequence_length + 1));
        const StepResult result = trainer.step(static_cast<int64_t>(s) + 1, {});
        if (rank == 0) seen.insert(seen.end(), {result.loss, result.grad_norm});
        ExactSum sum;
        if (evaluates) trainer.evaluate(sum);
      }
    });
    return seen;
  };
  EXPECT_EQ(run(true), run(false));
}

// The activations of a layer fit where the layers before it have their gradients, as far as these reach.
TEST_P(LendTest, TakesAllThatTheLayersBeforeHave) {
  const RunConfig config = job(GetParam());
  const RankPlan plan = plan_rank(config, 0);
  size_t before_last_layer = 0;
  for (const PlannedTensors& t : plan.weights)
    if (t.name.rfind("layers.", 0) == 0) before_last_layer += t.bytes * 3 / 4;
  EXPECT_GT(plan.lent_bytes, before_last_layer * 8 / 10);
  EXPECT_EQ(plan.memory.at(3).name, "activations");
  EXPECT_EQ(plan.memory.at(3).bytes + plan.lent_bytes, plan.slot_bytes);
}

TEST_P(LendTest, IsOfOneMicroBatchAndOneChunkAlone) {
  RunConfig config = job(GetParam());
  config.parallel.pipeline = 2;
  config.training.global_batch_size = 8;
  EXPECT_EQ(lent(config), 0U) << "two micro-batches";
  config.training.global_batch_size = 4;
  EXPECT_GT(lent(config), 0U);
  config.parallel.schedule = "zb-h1";
  EXPECT_EQ(lent(config), 0U) << "the weight halves come later";
  config.parallel.schedule = "interleaved";
  config.parallel.pipeline = 1;
  config.parallel.virtual_stages = 2;
  EXPECT_EQ(lent(config), 0U) << "two chunks";
}

INSTANTIATE_TEST_SUITE_P(Models, LendTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
