// Damage in one copy of what several ranks hold is found by the next comparison and named.

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>

#include "comm/ledger.h"
#include "engine/job.h"
#include "engine/replicas.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

RunConfig job(Architecture architecture, int tensor, int pipeline, int data) {
  RunConfig config = small_job(architecture, 6);
  config.model.num_hidden_layers = 2;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.reduce_bucket_size = 4000;
  config.logging.check_replicas = 2;
  config.checkpoint.interval = 1000;
  return config;
}

// Flips a bit of the exponent, by default the highest, in one element of `name` on one rank before a step.
// `kind`: 0 the weight, 1 the first moment.
struct Flip {
  int rank = 0;
  std::string name;
  int64_t position = 0;  // in the rank's box
  int64_t step = 2;
  int kind = 0;
  uint32_t bit = 0x40000000;
};

void apply(const Flip& flip, Trainer& trainer) {
  const auto& entries = trainer.params().entries();
  const auto invert = [&](float& x) { x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ flip.bit); };
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].spec.name != flip.name || entries[i].primary >= 0) continue;
    if (flip.kind == 0) {
      if (trainer.params().dtype() == DType::bf16)
        reinterpret_cast<uint16_t*>(trainer.params().weights().raw())[entries[i].offset + flip.position] ^=
            0x4000;
      else
        invert(trainer.params().weights().f32()[entries[i].offset + flip.position]);
      return;
    }
    for (const auto& piece : trainer.optimizer().updated().pieces())
      if (piece.entry == static_cast<int>(i) && flip.position >= piece.first_in_box &&
          flip.position < piece.first_in_box + piece.end - piece.begin)
        return invert(trainer.optimizer().exp_avg_at(piece.begin)[flip.position - piece.first_in_box]);
  }
  ADD_FAILURE() << flip.name << " is not on rank " << flip.rank;
}

// What the job says when it stops; empty when it does its four steps.
std::string run(const RunConfig& config, const Flip& flip) {
  const Batches batches = random_batches(config, 4, 3);
  std::vector<std::string> said(static_cast<size_t>(world_size(config)));
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  options.check_order = true;
  run_local_ranks(world_size(config), options, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    const RankPlan plan = plan_rank(config, rank);
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan.scratch_bytes);
    trainer.initialise();
    try {
      for (int64_t step = 1; step <= 4; ++step) {
        trainer.load_batch(batches[static_cast<size_t>(step - 1)].data() +
                           mesh.coordinate("dp") * trainer.rows_per_step() *
                               (config.training.sequence_length + 1));
        if (rank == flip.rank && step == flip.step) apply(flip, trainer);
        world.recorder().clear();
        const StepResult result = trainer.step(step, {});
        EXPECT_EQ(result.compared_replicas, step % 2 == 0);
        const auto faults =
            disagreements(plan.bytes_of_step(result.compared_replicas), world.recorder().ledger());
        EXPECT_TRUE(faults.empty()) << fmt::format("{}", faults.empty() ? "" : faults[0]);
      }
    } catch (const ReplicaError& error) {
      said[static_cast<size_t>(rank)] = error.what();
    }
  });
  for (const std::string& one : said) EXPECT_EQ(one, said[0]);
  return said[0];
}

void expect_named(const RunConfig& config, const Flip& flip, const std::string& what) {
  const std::string said = run(config, flip);
  EXPECT_NE(said.find(what), std::string::npos) << said << "\n instead of\n" << what;
}

const std::string host = [] {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return std::string(name);
}();

TEST(Replicas, EqualOnesPass) {
  EXPECT_EQ(run(job(Architecture::llama, 2, 2, 2), {.rank = -1}), "");
  RunConfig config = job(Architecture::gpt2, 2, 2, 2);
  config.training.precision = "bf16";
  config.parallel.zero_stage = 0;
  EXPECT_EQ(run(config, {.rank = -1}), "");
}

TEST(Replicas, AWeightOfOneDataRank) {
  // [96, 48], cut by rows over two tensor ranks: the second one begins at row 48. Ranks 1, 3 and 5 hold it.
  expect_named(
      job(Architecture::gpt2, 2, 1, 3), {3, "layers.1.mlp.up.weight", 2 * 48 + 7},
      fmt::format("layers.1.mlp.up.weight [48:96, 0:48]: rank 3 ({}) differs from ranks 1, 5; first at "
                  "[50, 7]: ",
                  host));
  // Two copies: nobody knows which is right.
  expect_named(
      job(Architecture::gpt2, 1, 1, 2), {1, "layers.0.attention.q.weight", 47},
      fmt::format("layers.0.attention.q.weight [0:48, 0:48]: rank 1 ({}) differs from rank 0 ({}), and no "
                  "majority tells which is right; first at [0, 47]: ",
                  host, host));
  RunConfig half = job(Architecture::gpt2, 1, 1, 3);
  half.training.precision = "bf16";
  expect_named(half, {2, "layers.0.mlp.down.weight", 5},
               fmt::format("rank 2 ({}) differs from ranks 0, 1; first at "
                           "[0, 5]: ",
                           host));
}

// A weight that every rank updates for itself keeps its damage until the next comparison; when that makes a
// step's numbers not finite, the comparison comes at once.
TEST(Replicas, WithoutZeroItIsFoundStepsLater) {
  RunConfig config = job(Architecture::gpt2, 1, 1, 3);
  config.parallel.zero_stage = 0;
  const auto words = [](int step) {
    return fmt::format(
        "step {}: replicas that should be equal are not; they were when step 2 compared them\n  "
        "layers.1.mlp.up.weight [0:96, 0:48]: rank 0 ({}) differs from ranks 1, 2; first at [0, 9]",
        step, host);
  };
  Flip flip{.rank = 0, .name = "layers.1.mlp.up.weight", .position = 9, .step = 3, .bit = 0x01000000};
  expect_named(config, flip, words(4));
  flip.bit = 0x40000000;
  expect_named(config, flip, words(3));
}

// A norm damaged on one rank makes the gradients of all ranks with its tensor coordinate wrong, and so their
// moments, four against four: the weight itself is what names the rank.
TEST(Replicas, ATensorThatNamesTheRankLeads) {
  RunConfig config = job(Architecture::gpt2, 2, 1, 4);
  config.training.global_batch_size = 8;
  config.training.micro_batch_size = 1;
  config.parallel.zero_stage = 0;
  config.optimizer.lr = 1e-30;
  const std::string said = run(
      config,
      {.rank = 5, .name = "layers.0.attention_norm.weight", .position = 11, .step = 3, .bit = 0x01000000});
  EXPECT_NE(
      said.find(fmt::format("compared them\n  layers.0.attention_norm.weight [0:48]: rank 5 ({}) differs "
                            "from ranks 0, 1, 2, 3, 4, 6, 7; first at [11]: ",
                            host)),
      std::string::npos)
      << said;
  EXPECT_NE(said.find("also in "), std::string::npos) << "the damage has not spread: " << said;
}

TEST(Replicas, AMomentOfAShardGroup) {
  RunConfig config = job(Architecture::gpt2, 1, 1, 6);
  config.parallel.zero_shard_ranks = 2;
  // Ranks 2 and 3 share the second copy of the state.
  expect_named(
      config, {.rank = 3, .name = "final_norm.weight", .position = 3, .kind = 1},
      fmt::format("exp_avg of final_norm.weight [0:48]: ranks 2 ({}), 3 ({}) differ from ranks 0, 1, 4, 5; "
                  "first at [3]: ",
                  host, host));
}

TEST(Replicas, NormsAndKeyHeadsOfTensorRanks) {
  expect_named(
      job(Architecture::llama, 3, 1, 1), {1, "layers.1.attention_norm.weight", 11},
      fmt::format("layers.1.attention_norm.weight [0:48]: rank 1 ({}) differs from ranks 0, 2; first at [11]",
                  host));
  // One key-value head for all three.
  expect_named(
      job(Architecture::llama, 3, 1, 1), {2, "layers.0.attention.k.weight", 50},
      fmt::format("layers.0.attention.k.weight [0:4, 0:48]: rank 2 ({}) differs from ranks 0, 1; first at "
                  "[1, 2]",
                  host));
}

TEST(Replicas, ATiedTable) {
  const RunConfig config =
      job(Architecture::gpt2, 1, 2, 2);  // held by stage 0 (ranks 0, 1) and 1 (ranks 2, 3)
  expect_named(
      config, {3, "embed.tokens.weight", 48 + 1},
      fmt::format("embed.tokens.weight [0:61, 0:48]: rank 3 ({}) differs from ranks 0, 1, 2; first at [1, 1]",
                  host));
  // Its moments lie in other slices on each stage; each copy has two ranks.
  const std::string said = run(config, {.rank = 2, .name = "embed.tokens.weight", .position = 0, .kind = 1});
  EXPECT_NE(said.find("exp_avg of embed.tokens.weight [0:61, 0:48]: "), std::string::npos) << said;
  EXPECT_NE(said.find("first at [0, 0]"), std::string::npos) << said;
}

}  // namespace
}  // namespace triax::test
