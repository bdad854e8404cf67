// What a micro-batch keeps from its forward to its backward, element by element (Korthikanti et al. 2022).

#include <gtest/gtest.h>

#include "model/block.h"
#include "model/chunk.h"

namespace triax {
namespace {

// Sizes at which every tensor fills whole units of the alignment, so that no padding is in the sums.
constexpr int64_t B = 2, S = 256, H = 256, A = 4, F = 512, T = B * S;

ModelConfig model(Architecture architecture) {
  ModelConfig m;
  m.architecture = architecture;
  m.vocab_size = 64;
  m.hidden_size = H;
  m.num_hidden_layers = 2;
  m.num_attention_heads = m.num_key_value_heads = A;
  m.intermediate_size = F;
  m.max_position_embeddings = S;
  return m;
}

ActivationShape shape_of(int tensor, bool sequence_parallel, Recompute recompute) {
  ActivationShape shape{.batch = B, .sequence = S, .hidden = H};
  shape.tensor = tensor;
  shape.sequence_parallel = sequence_parallel;
  shape.recompute = recompute;
  return shape;
}

int64_t block_elements(Architecture architecture, const ActivationShape& shape) {
  const Grid grid({{"tp", shape.tensor}});
  const auto device = make_null_device();
  ParamStore params(grid, 0, *device);
  Block block(0, model(architecture), shape.tensor);
  block.declare(params);
  Placement slot;
  block.plan(slot, shape);
  return static_cast<int64_t>(slot.bytes() / sizeof(float));
}

class SlotTest : public ::testing::TestWithParam<Architecture> {};

TEST_P(SlotTest, HoldsWhatTheBackwardReads) {
  const int64_t up = GetParam() == Architecture::llama ? 2 * F : F;  // gate and up
  for (const int t : {1, 2, 4})
    for (const bool sequence_parallel : {false, true}) {
      const int64_t rows = sequence_parallel ? T / t : T;
      const int64_t selective = 4 * rows         // means and deviations
                                + T * 3 * H / t  // q, k and v
                                + rows * H       // between attention and MLP
                                + T * up / t;
      const int64_t core = T * H / t + T * A / t;  // output and log-sum-exp
      EXPECT_EQ(block_elements(GetParam(), shape_of(t, sequence_parallel, Recompute::selective)), selective);
      EXPECT_EQ(block_elements(GetParam(), shape_of(t, sequence_parallel, Recompute::none)),
                selective + core);
    }
}

// Everything but the means and deviations of a row falls with t.
TEST_P(SlotTest, SequenceParallelismCutsAllOfItByTheTensorDegree) {
  const int64_t one = block_elements(GetParam(), shape_of(1, false, Recompute::none));
  for (const int t : {2, 4})
    EXPECT_EQ(block_elements(GetParam(), shape_of(t, true, Recompute::none)), one / t);
}

TEST_P(SlotTest, FullRecomputationKeepsInputsAlone) {
  for (const int t : {1, 2, 4})
    for (const bool sequence_parallel : {false, true})
      for (const bool partition : {false, true}) {
        ActivationShape shape = shape_of(t, sequence_parallel, Recompute::full);
        shape.partition_inputs = partition && !sequence_parallel;
        const Grid grid({{"tp", t}});
        const auto device = make_null_device();
        ParamStore params(grid, 0, *device);
        std::vector<std::unique_ptr<Module>> blocks;
        for (int layer = 0; layer < 2; ++layer)
          blocks.push_back(std::make_unique<Block>(layer, model(GetParam()), t));
        Chunk chunk(std::move(blocks), false, false);
        chunk.declare(params);
        chunk.plan(shape);
        const int64_t input = sequence_parallel || partition ? T * H / t : T * H;
        EXPECT_EQ(chunk.slot().bytes() / sizeof(float), static_cast<size_t>(2 * input));
      }
}

INSTANTIATE_TEST_SUITE_P(Models, SlotTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax
