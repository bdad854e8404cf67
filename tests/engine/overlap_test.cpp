// parallel.overlap_comm: messages start earlier and are waited for later, and no bit changes.

#include <gtest/gtest.h>

#include "support/sanitizer.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr int64_t steps = sanitized ? 3 : 5;

RunConfig job(Architecture architecture) {
  RunConfig config = small_job(architecture, steps);
  config.parallel.reduce_bucket_size = 4000;  // a few buckets per layer
  return config;
}

RunConfig on_grid(RunConfig config, int tensor, int pipeline, int data) {
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  return config;
}

class OverlapTest : public ::testing::TestWithParam<Architecture> {
 protected:
  void expect_same_bits(RunConfig config, const std::string& what) {
    config.parallel.overlap_comm = false;
    const TrainingRecord plain = train(config, batches_);
    config.parallel.overlap_comm = true;
    const TrainingRecord overlapped = train(config, batches_);
    EXPECT_EQ(overlapped, plain) << what;
    EXPECT_EQ(overlapped.exp_avg_sq, plain.exp_avg_sq) << what;
    EXPECT_EQ(overlapped.planned_peak, overlapped.measured_peak) << what;
  }
  RunConfig one_ = job(GetParam());
  Batches batches_ = random_batches(one_, steps, 41);
};

TEST_P(OverlapTest, ChangesNoBit) {
  expect_same_bits(on_grid(one_, 2, 1, 2), "2 x 1 x 2");
  expect_same_bits(on_grid(one_, 2, 2, 3), "2 x 2 x 3");
  RunConfig other = on_grid(one_, 2, 2, 2);
  other.parallel.zero_stage = 0;
  expect_same_bits(other, "zero 0");
  other = on_grid(one_, 1, 1, 4);
  other.parallel.zero_shard_ranks = 2;
  expect_same_bits(other, "zero_shard_ranks 2 of 4");
  other = on_grid(one_, 2, 1, 2);
  other.parallel.sequence_parallel = true;
  expect_same_bits(other, "sequence-parallel");
  other = on_grid(one_, 1, 2, 2);
  other.parallel.schedule = "zb-h1";
  expect_same_bits(other, "zb-h1");
  other = on_grid(one_, 1, 2, 2);
  other.parallel.schedule = "interleaved";
  other.parallel.virtual_stages = 2;
  expect_same_bits(other, "interleaved");
  other = on_grid(one_, 2, 1, 2);
  other.training.precision = "bf16";
  other.training.recompute = "full";
  expect_same_bits(other, "bf16, full recomputation");
}

// Reductions add in rank order however long their messages are.
TEST_P(OverlapTest, BucketsChangeNoBit) {
  RunConfig grid = on_grid(one_, 2, 1, 3);
  const TrainingRecord small = train(grid, batches_);
  grid.parallel.reduce_bucket_size = 1 << 20;
  EXPECT_EQ(train(grid, batches_), small);
}

/// A step's calls on rank 0, in the order in which they were started; `pending`: the gathers of weights that
/// were under way when step() returned.
struct Trace {
  std::vector<std::pair<std::string, CommOp>> calls;
  int pending = 0, pending_after_reading = 0;
};

Trace trace(const RunConfig& config, const Batches& batches) {
  Trace trace;
  run_local_ranks(config.parallel.tensor * config.parallel.data, {}, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    const int64_t row = config.training.sequence_length + 1;
    trainer.load_batch(batches[0].data() + mesh.coordinate("dp") * trainer.rows_per_step() * row);
    trainer.step(1, {});
    const auto pending = [&] {
      int n = 0;
      for (const auto& call : world.recorder().recent()) n += call.op == CommOp::all_gather && !call.done;
      return n;
    };
    if (rank == 0) {
      for (const auto& call : world.recorder().recent()) trace.calls.emplace_back(call.group->name, call.op);
      trace.pending = pending();
    }
    world.barrier();
    trainer.params().weights();
    if (rank == 0) trace.pending_after_reading = pending();
  });
  return trace;
}

int calls_after_first_reduction(const Trace& trace, const std::string& group) {
  int n = -1;
  for (const auto& [name, op] : trace.calls) {
    if (n >= 0 && name == group) ++n;
    if (n < 0 && name == "dp" && op == CommOp::reduce_scatter) n = 0;
  }
  return n;
}

TEST_P(OverlapTest, GradientsLeaveBeforeTheBackwardEndsAndWeightsComeUnderTheNextForward) {
  RunConfig config = on_grid(one_, 2, 1, 2);
  config.training.global_batch_size = 2;  // one micro-batch: few calls, all of them in the recorder's ring
  config.parallel.overlap_comm = false;
  const Trace plain = trace(config, batches_);
  config.parallel.overlap_comm = true;
  const Trace overlapped = trace(config, batches_);
  EXPECT_EQ(plain.calls.size(), overlapped.calls.size());
  EXPECT_EQ(plain.pending, 0);
  EXPECT_GT(overlapped.pending, 1);
  EXPECT_EQ(overlapped.pending_after_reading, 0);
  // Behind the first reduction of gradients comes no call of the backward, or the backward of whole layers.
  EXPECT_EQ(calls_after_first_reduction(plain, "tp"), 0);
  EXPECT_GT(calls_after_first_reduction(overlapped, "tp"), 2);
}

INSTANTIATE_TEST_SUITE_P(Models, OverlapTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
