// What the data axis sends per step, counted by the recorder of a real step, is the published number, and the
// plan's.

#include <gtest/gtest.h>

#include "support/counted.h"

namespace triax::test {
namespace {

RunConfig job(int tensor, int data, const std::string& precision = "fp32") {
  RunConfig config;
  config.training.precision = precision;
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

constexpr double gradient_bytes = 4;

// (d - 1)/d * N_rank * (4 + bytes per weight).
TEST(ZeroBytes, OfPlainZero) {
  for (const auto& [precision, weight_bytes] : {std::pair{"fp32", 4}, {"bf16", 2}})
    for (int data : {2, 3, 4}) {
      const RunConfig config = job(2, data, precision);
      const Counted c = count_step(config)[1];
      const double share = (data - 1.0) / data * c.elements;
      EXPECT_DOUBLE_EQ(bytes(c.ledger, "dp", CommOp::reduce_scatter), share * gradient_bytes);
      EXPECT_DOUBLE_EQ(bytes(c.ledger, "dp", CommOp::all_gather), share * weight_bytes);
      expect_planned(c.ledger, config, 1);
    }
}

// Groups of N: what a reduce-scatter in the group and an all-reduce of the slices across groups would send,
// (N - 1)/N + 2 (M - 1)/M / N of the gradients with M = d/N, and (N - 1)/N of the weights.
TEST(ZeroBytes, OfShardGroups) {
  for (int shards : {1, 2, 3, 6}) {
    RunConfig config = job(1, 6);
    config.parallel.zero_shard_ranks = shards;
    const Counted c = count_step(config)[1];
    const double n = shards, m = 6 / n, all = c.elements;
    const std::string group = shards == 6 ? "dp" : "dp-shard", replicas = shards == 1 ? "dp" : "dp-replicas";
    EXPECT_NEAR(bytes(c.ledger, "dp", CommOp::reduce_scatter) +
                    (shards == 6 ? 0 : bytes(c.ledger, replicas, CommOp::all_gather)),
                ((n - 1) / n + 2 * (m - 1) / m / n) * all * gradient_bytes, 1e-6)
        << shards;
    if (shards > 1) {
      EXPECT_NEAR(bytes(c.ledger, group, CommOp::all_gather), (n - 1) / n * all * 4, 1e-6);
    }
    expect_planned(c.ledger, config, 1);
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
        // Two moments and the update's scalars, each rounded up to the arena's alignment.
        EXPECT_LE(static_cast<double>(line.bytes), want + 3 * Placement::alignment);
      }
  }
}

}  // namespace
}  // namespace triax::test
