// What the data axis sends per step, counted by the recorder of a real step, is the published number, and the
// plan's.

#include <gtest/gtest.h>

#include "support/training.h"

namespace triax::test {
namespace {

using Ledger = std::map<std::pair<std::string, CommOp>, Recorder::Entry>;

RunConfig job(int tensor, int data) {
  RunConfig config;
  config.model = {.vocab_size = 61,
                  .hidden_size = 24,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 4,
                  .num_key_value_heads = 4,
                  .intermediate_size = 40,
                  .max_position_embeddings = 8};
  config.training.global_batch_size = data;
  config.training.micro_batch_size = 1;
  config.training.sequence_length = 8;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = 1;
  config.parallel.data = data;
  return config;
}

struct Counted {
  Ledger ledger;        // of rank 1's step
  double elements = 0;  // of its weights, padding included
};

Counted count(const RunConfig& config) {
  Counted counted;
  const Batches batches = random_batches(config, 1, 3);
  run_local_ranks(config.parallel.tensor * config.parallel.data, {}, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    const int64_t row = config.training.sequence_length + 1;
    trainer.load_batch(batches[0].data() + mesh.coordinate("dp") * trainer.rows_per_step() * row);
    world.recorder().clear();
    trainer.step(1, {});
    if (rank == 1) counted = {world.recorder().ledger(), static_cast<double>(trainer.params().elements())};
  });
  return counted;
}

double bytes(const Ledger& ledger, const std::string& group, CommOp op) {
  const auto found = ledger.find({group, op});
  return found == ledger.end() ? 0 : found->second.bytes;
}

void expect_planned(const Ledger& ledger, const RunConfig& config) {
  const auto planned = plan_rank(config, 1).bytes_per_step;
  ASSERT_EQ(planned.size(), ledger.size());
  for (const auto& [key, entry] : ledger) {
    EXPECT_EQ(planned.at(key).bytes, entry.bytes) << key.first;
    EXPECT_EQ(planned.at(key).calls, entry.calls) << key.first;
  }
}

constexpr double gradient_bytes = 4;

// (d - 1)/d * N_rank * (4 + bytes per weight).
TEST(ZeroBytes, OfPlainZero) {
  for (int data : {2, 3, 4}) {
    const RunConfig config = job(2, data);
    const Counted c = count(config);
    const double share = (data - 1.0) / data * c.elements;
    EXPECT_DOUBLE_EQ(bytes(c.ledger, "dp", CommOp::reduce_scatter), share * gradient_bytes);
    EXPECT_DOUBLE_EQ(bytes(c.ledger, "dp", CommOp::all_gather), share * 4);
    expect_planned(c.ledger, config);
  }
}

// Groups of N: what a reduce-scatter in the group and an all-reduce of the slices across groups would send,
// (N - 1)/N + 2 (M - 1)/M / N of the gradients with M = d/N, and (N - 1)/N of the weights.
TEST(ZeroBytes, OfShardGroups) {
  for (int shards : {1, 2, 3, 6}) {
    RunConfig config = job(1, 6);
    config.parallel.zero_shard_ranks = shards;
    const Counted c = count(config);
    const double n = shards, m = 6 / n, all = c.elements;
    const std::string group = shards == 6 ? "dp" : "dp-shard", replicas = shards == 1 ? "dp" : "dp-replicas";
    EXPECT_NEAR(bytes(c.ledger, "dp", CommOp::reduce_scatter) +
                    (shards == 6 ? 0 : bytes(c.ledger, replicas, CommOp::all_gather)),
                ((n - 1) / n + 2 * (m - 1) / m / n) * all * gradient_bytes, 1e-6)
        << shards;
    if (shards > 1) {
      EXPECT_NEAR(bytes(c.ledger, group, CommOp::all_gather), (n - 1) / n * all * 4, 1e-6);
    }
    expect_planned(c.ledger, config);
  }
}

// The state's memory falls with the degree of sharing, not with that of data.
TEST(ZeroBytes, StateIsSharedByTheGroup) {
  for (int shards : {1, 2, 3, 6}) {
    RunConfig config = job(1, 6);
    config.parallel.zero_shard_ranks = shards;
    const RankPlan plan = plan_rank(config, 1);
    for (const MemoryLine& line : plan.memory)
      if (line.name == "optimizer") {
        const double want = 8.0 * static_cast<double>(plan.parameters) / shards;
        EXPECT_GE(static_cast<double>(line.bytes), want);
        EXPECT_LT(static_cast<double>(line.bytes), want + 2 * Placement::alignment);
      }
  }
}

}  // namespace
}  // namespace triax::test
