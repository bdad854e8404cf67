// The gradient noise scale that a step measures, against gradients of each data rank's sequences alone.

#include <gtest/gtest.h>

#include "engine/job.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

RunConfig job(Architecture architecture, int tensor, int pipeline, int data) {
  RunConfig config = small_job(architecture, 2);
  config.model.num_hidden_layers = 2;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.reduce_bucket_size = 4000;
  config.logging.gradient_noise_scale = 1;
  return config;
}

std::vector<NoiseSample> measure(const RunConfig& config, const Batches& batches) {
  std::vector<NoiseSample> samples;
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  run_local_ranks(world_size(config), options, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    for (size_t s = 0; s < batches.size(); ++s) {
      trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() *
                                                 (config.training.sequence_length + 1));
      const StepResult result = trainer.step(static_cast<int64_t>(s) + 1, {});
      if (rank == 0 && result.noise) samples.push_back(*result.noise);
    }
  });
  return samples;
}

double squared_norm(const Tensors& gradients) {
  double sum = 0;
  for (const auto& [name, tensor] : gradients) sum += norm(tensor) * norm(tensor);
  return sum;
}

void expect_near(const NoiseSample& a, const NoiseSample& b, const std::string& what) {
  const double scale = std::max(std::fabs(b.norm_squared), b.trace / 12);
  EXPECT_NEAR(a.norm_squared, b.norm_squared, 1e-5 * scale) << what;
  EXPECT_NEAR(a.trace / b.trace, 1, 1e-5) << what;
}

class NoiseTest : public ::testing::TestWithParam<Architecture> {};

TEST_P(NoiseTest, IsThatOfTheRanksGradientsAndDependsOnNoOtherCut) {
  constexpr int data = 3;
  const RunConfig base = job(GetParam(), 1, 1, data);
  const Batches batches = random_batches(base, 2, 8);
  RunConfig one = job(GetParam(), 1, 1, 1);
  const double big = squared_norm(train(one, {batches[0]}).first_gradients);
  one.training.global_batch_size = 4;
  double small = 0;
  for (int rank = 0; rank < data; ++rank) {
    const auto rows = static_cast<std::ptrdiff_t>(4 * (one.training.sequence_length + 1));
    const auto first = batches[0].begin() + rank * rows;
    small += squared_norm(train(one, {{first, first + rows}}).first_gradients) / data;
  }
  const NoiseSample truth{(12 * big - 4 * small) / (12 - 4), (small - big) / (1.0 / 4 - 1.0 / 12)};
  ASSERT_GT(truth.trace, 0);
  const auto measured = measure(base, batches);
  ASSERT_EQ(measured.size(), 2U);
  expect_near(measured[0], truth, "one tensor rank");

  std::vector<RunConfig> same{job(GetParam(), 1, 2, data), base, base};
  same[1].parallel.zero_stage = 0;
  same[2].parallel.overlap_comm = false;
  for (const RunConfig& config : same) {
    const auto again = measure(config, batches);
    for (size_t s = 0; s < measured.size(); ++s) {
      EXPECT_EQ(again[s].trace, measured[s].trace);
      EXPECT_EQ(again[s].norm_squared, measured[s].norm_squared);
    }
  }
  // One micro-batch, whose activations lie in the gradients' memory but for zb-h1.
  RunConfig lent = base, own = base;
  lent.training.micro_batch_size = own.training.micro_batch_size = 4;
  own.parallel.schedule = "zb-h1";
  EXPECT_GT(plan_rank(lent, 0).lent_bytes, 0U);
  EXPECT_EQ(plan_rank(own, 0).lent_bytes, 0U);
  const auto of_lent = measure(lent, batches), of_own = measure(own, batches);
  expect_near(of_lent[0], truth, "one micro-batch");
  for (size_t s = 0; s < of_own.size(); ++s) {
    EXPECT_EQ(of_lent[s].trace, of_own[s].trace);
    EXPECT_EQ(of_lent[s].norm_squared, of_own[s].norm_squared);
  }
  RunConfig cut = job(GetParam(), 3, 1, data);  // llama: one key-value head in three copies
  expect_near(measure(cut, batches)[0], truth, "three tensor ranks");
  cut.parallel.sequence_parallel = true;
  expect_near(measure(cut, batches)[0], truth, "sequence-parallel");
}

TEST_P(NoiseTest, OnlyWhereItCanBe) {
  RunConfig config = job(GetParam(), 1, 1, 1);
  EXPECT_TRUE(measure(config, random_batches(config, 2, 8)).empty());
  config = job(GetParam(), 1, 1, 2);
  config.logging.gradient_noise_scale = 2;
  EXPECT_EQ(measure(config, random_batches(config, 2, 8)).size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Models, NoiseTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
