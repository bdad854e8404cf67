// Training on the emulated CUDA library and, suites Cuda..., on a GPU, against the CPU: losses, gradients and
// weights within DESIGN section 7, on one rank and on grids of thread ranks.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/cuda_choices.h"
#include "support/golden.h"

namespace triax::test {
namespace {

RunConfig small_job(const std::string& architecture) {
  RunConfig c;
  c.model.architecture = architecture == "llama" ? Architecture::llama : Architecture::gpt2;
  c.model.vocab_size = 130;
  c.model.hidden_size = 64;
  c.model.num_hidden_layers = 2;
  c.model.num_attention_heads = 4;
  c.model.num_key_value_heads = architecture == "llama" ? 2 : 4;
  c.model.intermediate_size = 96;
  c.model.max_position_embeddings = 32;
  c.model.tie_word_embeddings = architecture != "llama";
  c.training.steps = 3;
  c.training.global_batch_size = 4;
  c.training.micro_batch_size = 1;
  c.training.sequence_length = 32;
  c.lr_schedule.name = "constant";
  c.lr_schedule.warmup_steps = 0;
  c.optimizer.lr = 1e-3;
  c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 1;
  return c;
}

RunConfig on_cuda(RunConfig c) {
  c.training.device = "cuda";
  return c;
}

RunConfig on_grid(RunConfig c, int tensor, int pipeline, int data) {
  c.parallel.tensor = tensor;
  c.parallel.pipeline = pipeline;
  c.parallel.data = data;
  return c;
}

double weights_apart(const Tensors& a, const Tensors& b) {
  double apart = 0, size = 0;
  for (const auto& [name, tensor] : b) {
    apart += std::pow(distance(a.at(name), tensor), 2);
    size += std::pow(norm(tensor), 2);
  }
  return std::sqrt(apart / size);
}

void expect_as_on_the_cpu(const RunConfig& job) {
  const Batches batches = random_batches(job, job.training.steps, 5);
  const TrainingRecord cpu = train(on_grid(job, 1, 1, 1), batches), cuda = train(on_cuda(job), batches);
  expect_close(cuda, cpu, "cuda against the CPU");
  EXPECT_NEAR(cuda.evaluation / cpu.evaluation, 1.0, 1e-5);
  EXPECT_LT(weights_apart(cuda.weights, cpu.weights), 1e-4);
  EXPECT_EQ(cuda.planned_peak, cuda.measured_peak);
  EXPECT_EQ(cuda.planned_on_device, cuda.most_on_device);
}

// What the plan says of a GPU is what is allocated there, to the byte, whether GELU ends a product or has a
// kernel of its own. Most of the scratch here is the feed-forward layer's.
void expect_memory_as_planned(const std::string& precision, int tensor, int pipeline) {
  RunConfig job = on_cuda(on_grid(small_job("gpt2"), tensor, pipeline, 1));
  job.model.intermediate_size = 2048;
  job.training.precision = precision;
  const TrainingRecord record = train(job, random_batches(job, 1, 5));
  EXPECT_GT(record.most_on_device, cuda_workspace_bytes);
  EXPECT_EQ(record.planned_on_device, record.most_on_device) << precision;
  EXPECT_EQ(record.planned_peak, record.measured_peak) << precision;
  const Kernels apart = null_kernels();
  const size_t planned = plan_rank(job, 0).scratch_bytes,
               of_kernels = plan_rank(job, 0, &apart).scratch_bytes;
  // A product that ends with GELU's gradient does not give the memory of what it reads to the activation.
  const int64_t width = job.model.intermediate_size / tensor, tokens = job.training.sequence_length;
  const int64_t more = precision == "bf16" ? tokens * width * 2 : 0;
  EXPECT_EQ(planned, of_kernels + static_cast<size_t>(more)) << precision;
}

// PyTorch's numbers of one model: in fp32 within DESIGN section 7, in bf16 each parameter's gradient about
// as far from float64 as PyTorch's bf16.
void expect_pytorch(const std::string& name, int64_t steps) {
  Golden golden = read_golden(name);
  golden.config.training.device = "cuda";
  golden.config.training.steps = steps;
  const bool all = static_cast<size_t>(steps) == golden.batches.size();
  golden.batches.resize(static_cast<size_t>(steps));
  const TrainingRecord record = train(golden.config, golden.batches, golden.initial);
  if (all) expect_golden(golden, record);
  EXPECT_LT(gradient_error(record.first_gradients, golden.gradients), 1e-5) << name;
  golden.config.training.precision = "bf16";
  golden.batches.resize(1);
  expect_gradients_as_near_as_pytorch(name, golden,
                                      train(golden.config, golden.batches, golden.initial).first_gradients);
}

// bf16 rounds everything that is stored; two implementations are as far apart as each is from fp32.
void expect_as_on_the_cpu_in_bf16(RunConfig job) {
  const Batches batches = random_batches(job, job.training.steps, 5);
  const TrainingRecord exact = train(job, batches);
  job.training.precision = "bf16";
  const TrainingRecord cpu = train(job, batches), cuda = train(on_cuda(job), batches);
  const double of_cpu = gradient_error(cpu.first_gradients, exact.first_gradients),
               of_cuda = gradient_error(cuda.first_gradients, exact.first_gradients);
  EXPECT_LT(of_cuda, 1.5 * of_cpu);
  for (size_t s = 0; s < exact.losses.size(); ++s) EXPECT_NEAR(cuda.losses[s] / exact.losses[s], 1.0, 5e-3);
}

// A tied table's gradient by the rows that a step looks up, on one stage, against the whole table's, on two.
void expect_tied_by_slot() {
  RunConfig job = on_cuda(small_job("gpt2"));
  job.model.vocab_size = job.training.global_batch_size * job.training.sequence_length + 67;
  const Batches batches = random_batches(job, job.training.steps, 7);
  expect_identical(train(job, batches), train(on_grid(job, 1, 2, 1), batches), "tied, by slot");
}

// A step of one micro-batch, whose activations lie in the gradients' memory, has the bits of one under zb-h1,
// whose activations have their own.
void expect_lent_memory_changes_no_bit(RunConfig job) {
  job.training.micro_batch_size = job.training.global_batch_size / job.parallel.data;
  expect_as_on_the_cpu(job);
  RunConfig own = on_cuda(job);
  own.parallel.schedule = "zb-h1";
  EXPECT_GT(plan_rank(on_cuda(job), 0).lent_bytes, 0U);
  EXPECT_EQ(plan_rank(own, 0).lent_bytes, 0U);
  const Batches batches = random_batches(job, job.training.steps, 8);
  expect_identical(train(on_cuda(job), batches), train(own, batches), "lent memory");
}

/// The emulated library stands behind training.device: cuda.
class EmulatedTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string library = std::string(TRIAX_BINARY_DIR) + "/lib/triax_cuda_emulated.so";
    if (!std::filesystem::exists(library)) GTEST_SKIP() << library << " was not built";
    setenv("TRIAX_CUDA_LIBRARY", library.c_str(), 1);
  }
  void TearDown() override { unsetenv("TRIAX_CUDA_LIBRARY"); }
};

/// A GPU does.
class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    // A bundle's lies elsewhere.
    const char* named = std::getenv("TRIAX_TEST_CUDA_LIBRARY");
    const std::string library = named ? named : std::string(TRIAX_BINARY_DIR) + "/lib/triax_cuda.so";
    setenv("TRIAX_CUDA_LIBRARY", library.c_str(), 1);
    try {
      check_backend("cuda");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { unsetenv("TRIAX_CUDA_LIBRARY"); }
};

TEST_F(EmulatedTraining, GPT2OnOneRank) {
  expect_as_on_the_cpu(small_job("gpt2"));
}

TEST_F(EmulatedTraining, OneMicroBatch) {
  expect_lent_memory_changes_no_bit(small_job("gpt2"));
  expect_lent_memory_changes_no_bit(on_grid(small_job("llama"), 1, 2, 2));
}

TEST_F(EmulatedTraining, LlamaOnEightThreadRanks) {
  expect_as_on_the_cpu(on_grid(small_job("llama"), 2, 2, 2));
}

TEST_F(EmulatedTraining, SequenceParallelRecomputedWithDropout) {
  RunConfig job = on_grid(small_job("gpt2"), 2, 1, 2);
  job.parallel.sequence_parallel = true;
  job.training.recompute = "selective";
  job.model.hidden_dropout = 0.1;
  expect_as_on_the_cpu(job);
}

TEST_F(EmulatedTraining, Bf16) {
  expect_as_on_the_cpu_in_bf16(small_job("llama"));
}

TEST_F(EmulatedTraining, MemoryIsAsPlanned) {
  expect_memory_as_planned("fp32", 1, 1);
  expect_memory_as_planned("bf16", 1, 1);
  expect_memory_as_planned("bf16", 2, 2);
}

TEST_F(EmulatedTraining, IsPyTorch) {
  expect_pytorch("gpt2-tied", 1);
  expect_pytorch("llama-gqa-2", 1);
}

TEST_F(EmulatedTraining, WhatMustNotChangeABitDoesNot) {
  const RunConfig job = on_cuda(on_grid(small_job("gpt2"), 1, 1, 2));
  const Batches batches = random_batches(job, job.training.steps, 6);
  const TrainingRecord usual = train(job, batches);
  expect_identical(train(job, batches), usual, "the same again");
  RunConfig other = on_grid(job, 1, 2, 2);
  other.training.recompute = "full";
  other.parallel.zero_stage = 0;
  other.parallel.overlap_comm = false;
  expect_identical(train(other, batches), usual, "another pipeline, recomputed, ZeRO 0, no overlap");
}

TEST_F(EmulatedTraining, TiedTableLargerThanAStep) {
  expect_tied_by_slot();
}

TEST_F(CudaTraining, GPT2OnOneRank) {
  expect_as_on_the_cpu(small_job("gpt2"));
}

TEST_F(CudaTraining, OneMicroBatch) {
  expect_lent_memory_changes_no_bit(small_job("gpt2"));
  expect_lent_memory_changes_no_bit(on_grid(small_job("llama"), 1, 2, 2));
}

TEST_F(CudaTraining, LlamaOnEightThreadRanks) {
  expect_as_on_the_cpu(on_grid(small_job("llama"), 2, 2, 2));
}

TEST_F(CudaTraining, Bf16) {
  expect_as_on_the_cpu_in_bf16(small_job("llama"));
}

TEST_F(CudaTraining, TiedTableLargerThanAStep) {
  expect_tied_by_slot();
}

TEST_F(CudaTraining, MemoryIsAsPlanned) {
  expect_memory_as_planned("fp32", 1, 1);
  expect_memory_as_planned("bf16", 1, 1);
  expect_memory_as_planned("bf16", 2, 2);
}

TEST_F(CudaTraining, IsPyTorch) {
  for (const std::string& name : golden_names())
    expect_pytorch(name, static_cast<int64_t>(read_golden(name).batches.size()));
}

TEST_F(CudaTraining, IsBitIdenticalWhenRepeated) {
  const RunConfig job = on_cuda(on_grid(small_job("gpt2"), 2, 1, 2));
  const Batches batches = random_batches(job, job.training.steps, 6);
  expect_identical(train(job, batches), train(job, batches), "the same again");
}

}  // namespace
}  // namespace triax::test
