// `triax verify`: what it shrinks, and that it agrees where grids agree. That it disagrees where they don't
// is shown by seeded faults (tests/mutations).
#include <gtest/gtest.h>

#include <cmath>

#include "engine/job.h"
#include "engine/legal.h"
#include "engine/plan.h"
#include "engine/shrink.h"
#include "engine/verify.h"
#include "support/sanitizer.h"

namespace triax {
namespace {

RunConfig large_job(Architecture architecture) {
  RunConfig c;
  c.model.architecture = architecture;
  c.model.vocab_size = 50257;
  c.model.hidden_size = 4096;
  c.model.num_hidden_layers = 32;
  c.model.num_attention_heads = 32;
  c.model.num_key_value_heads = architecture == Architecture::llama ? 8 : 32;
  c.model.intermediate_size = 14336;
  c.model.max_position_embeddings = 8192;
  c.training.steps = 100000;
  c.training.global_batch_size = 1024;
  c.training.micro_batch_size = 4;
  c.training.sequence_length = 4096;
  c.parallel.tensor = 4;
  c.parallel.pipeline = 2;
  c.parallel.data = 2;
  return c;
}

std::vector<std::string> problems_of(const RunConfig& c) {
  FieldReport report;
  check_legal(c, world_size(c), "the test", report);
  return report.problems;
}

TEST(Shrink, KeepsGridRatiosAndUnevenness) {
  const RunConfig job = large_job(Architecture::llama);
  const RunConfig small = shrink(job);
  EXPECT_EQ(small.parallel, job.parallel);
  EXPECT_EQ(small.seed, job.seed);
  EXPECT_EQ(small.model.num_key_value_heads, 8);   // two per tensor rank
  EXPECT_EQ(small.model.num_attention_heads, 16);  // two query heads each
  EXPECT_EQ(small.model.hidden_size, 128);
  EXPECT_EQ(small.model.intermediate_size, 448);  // 3.5 times hidden
  EXPECT_EQ(small.model.vocab_size % 4, 50257 % 4);
  EXPECT_EQ(small.model.num_hidden_layers, 4);
  EXPECT_EQ(small.training.global_batch_size, 4 * 2 * 2);
  EXPECT_EQ(problems_of(small), std::vector<std::string>());
}

TEST(Shrink, IsLegalForOddJobs) {
  for (int tensor : {1, 2, 3, 6})
    for (int pipeline : {1, 3, 4})
      for (int64_t kv : {1, 2, 6, 12})
        for (int64_t layers : {4, 7, 13})
          for (int64_t sequence : {6, 30, 4096}) {
            RunConfig c = large_job(Architecture::llama);
            c.model.num_attention_heads = 12;
            c.model.num_key_value_heads = kv;
            c.model.hidden_size = 12 * 64;
            c.model.intermediate_size = 6 * 301;
            c.model.num_hidden_layers = layers;
            c.training.sequence_length = sequence;
            c.training.global_batch_size = 4 * 2 * 5;
            c.parallel.tensor = tensor;
            c.parallel.pipeline = pipeline;
            c.parallel.sequence_parallel = tensor > 1;
            if (!problems_of(c).empty()) continue;
            const RunConfig small = shrink(c);
            EXPECT_EQ(problems_of(small), std::vector<std::string>());
            EXPECT_LE(small.model.hidden_size, c.model.hidden_size);
            EXPECT_LE(small.model.num_hidden_layers, c.model.num_hidden_layers);
            EXPECT_LE(small.training.sequence_length, c.training.sequence_length);
            EXPECT_EQ(small.model.num_hidden_layers % pipeline != 0, layers % pipeline != 0);
            EXPECT_EQ(small.model.vocab_size % tensor, c.model.vocab_size % tensor);
          }
}

// A fault that only one micro-batch has, or only several, is not in both of the runs that are compared.
TEST(Shrink, TheOneRankCutsTheBatchOtherwiseThanTheJob) {
  RunConfig job = shrink(large_job(Architecture::llama));
  EXPECT_EQ(on_one_rank(job).training.micro_batch_size, job.training.global_batch_size);
  job.training.global_batch_size = job.training.micro_batch_size * job.parallel.data;  // 4 sequences
  EXPECT_EQ(on_one_rank(job).training.micro_batch_size, 2);
  job.parallel.data = 3;
  job.training.global_batch_size = 3 * (job.training.micro_batch_size = 1);
  EXPECT_EQ(on_one_rank(job).training.micro_batch_size, 1);
  EXPECT_EQ(problems_of(on_one_rank(job)), std::vector<std::string>());
  job.parallel.data = job.training.global_batch_size = 1;
  EXPECT_EQ(on_one_rank(job).parallel.schedule, "zb-h1");
  EXPECT_EQ(problems_of(on_one_rank(job)), std::vector<std::string>());
}

// 50257 rows of 4096 fill many buckets.
TEST(Shrink, ATiedTableOfAStepOfOneMicroBatchFillsABucketAsInTheJob) {
  RunConfig job = large_job(Architecture::gpt2);
  job.model.tie_word_embeddings = true;
  EXPECT_EQ(shrink(job).parallel, job.parallel) << "several micro-batches";
  job.training.global_batch_size = job.training.micro_batch_size * job.parallel.data;
  const RunConfig small = shrink(job);
  EXPECT_LT(small.parallel.reduce_bucket_size, small.model.vocab_size * small.model.hidden_size);
  EXPECT_EQ(problems_of(small), std::vector<std::string>());
}

TEST(Verify, AgreesOnAGridOfAllAxes) {
  for (const Architecture architecture : {Architecture::gpt2, Architecture::llama}) {
    RunConfig job = large_job(architecture);
    job.parallel.tensor = 2;
    job.parallel.pipeline = test::thread_sanitizer ? 1 : 2;
    job.training.global_batch_size = 4 * 2 * 3;
    const VerifyReport report = verify(job);
    EXPECT_TRUE(report.agrees()) << to_text(report);
    EXPECT_EQ(report.losses.size(), 10u);
    EXPECT_GE(report.gradients.size(), 20u);
    EXPECT_EQ(report.planned_ranks, world_size(job));
    EXPECT_NE(report.losses.front(), report.losses.back());
  }
}

// Activations lie in the gradients' memory, and data ranks fill up the table's bucket.
TEST(Verify, AgreesOnAStepOfOneMicroBatch) {
  RunConfig job = large_job(Architecture::llama);
  job.model.tie_word_embeddings = true;
  job.parallel.tensor = job.parallel.pipeline = 1;
  job.parallel.data = 3;
  job.training.global_batch_size = job.training.micro_batch_size * job.parallel.data;
  const VerifyReport report = verify(job);
  EXPECT_GT(plan_rank(report.job, 0).lent_bytes, 0U);
  EXPECT_TRUE(report.agrees()) << to_text(report);
}

// Rounding may hide a fault, so a bf16 job is looked at in fp32 first.
TEST(Verify, ABf16JobIsVerifiedInBothPrecisions) {
  RunConfig job = large_job(Architecture::gpt2);
  EXPECT_EQ(runs_to_verify(job).size(), 1u);
  job.training.precision = "bf16";
  const auto runs = runs_to_verify(job);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].training.precision, "fp32");
  EXPECT_LT(bounds_of(runs[0]).gradient, bounds_of(runs[1]).gradient);
  job.parallel.tensor = 2;
  job.training.global_batch_size = 4 * 2 * 3;
  const VerifyReport report = verify(job);
  EXPECT_TRUE(report.agrees()) << to_text(report);
}

TEST(Verify, SaysWhatDiffersFirst) {
  VerifyReport report;
  report.job = shrink(large_job(Architecture::gpt2));
  report.gradients = {{"a", 1e-7}, {"b", 3e-2}, {"c", NAN}};
  report.losses = {2.0, 1.5};
  report.losses_on_one_rank = {2.0, 1.6};
  report.plan_faults = {"rank 3, step 1: tp all_reduce: 2 calls planned"};
  EXPECT_FALSE(report.agrees());
  const std::string text = to_text(report);
  EXPECT_NE(text.find("DIFFER: the first is b, by 3.000e-02 where 1e-05 is allowed; 2 of 3 differ"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("step 2 is the first"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 3, step 1: tp all_reduce"), std::string::npos) << text;
}

// All gradients are 0 then, and so is the sum that errors are relative to.
TEST(Verify, AModelOfZerosAgreesWithItself) {
  RunConfig job = large_job(Architecture::llama);
  job.model.initializer_range = 0;
  job.training.global_batch_size = 4 * 2 * 2;
  const VerifyReport report = verify(job);
  EXPECT_TRUE(report.agrees()) << to_text(report);
  for (const VerifyReport::Gradient& g : report.gradients) EXPECT_EQ(g.error, 0) << g.name;
}

TEST(Verify, NothingComparedIsNoAgreement) {
  EXPECT_FALSE(VerifyReport().agrees());
}

}  // namespace
}  // namespace triax
