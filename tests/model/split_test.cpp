#include <gtest/gtest.h>

#include <set>

#include "model/gpt.h"

namespace triax {
namespace {

ModelConfig gpt2(int64_t layers, int64_t hidden, int64_t vocabulary) {
  ModelConfig m;
  m.vocab_size = vocabulary;
  m.hidden_size = hidden;
  m.num_hidden_layers = layers;
  m.num_attention_heads = m.num_key_value_heads = 12;
  m.intermediate_size = 4 * hidden;
  m.max_position_embeddings = 1024;
  return m;
}

std::vector<int> counts(const std::vector<int>& first) {
  std::vector<int> out;
  for (size_t i = 0; i + 1 < first.size(); ++i) out.push_back(first[i + 1] - first[i]);
  return out;
}

TEST(SplitLayers, EveryPartHasALayerAndAllAreThere) {
  for (int layers = 1; layers <= 13; ++layers)
    for (int parts = 1; parts <= layers; ++parts) {
      const auto first = split_layers(gpt2(layers, 96, 50257), parts);
      ASSERT_EQ(first.size(), static_cast<size_t>(parts) + 1);
      EXPECT_EQ(first.front(), 0);
      EXPECT_EQ(first.back(), layers);
      for (int n : counts(first)) EXPECT_GE(n, 1);
    }
  EXPECT_THROW(split_layers(gpt2(2, 96, 61), 3), Error);
}

TEST(SplitLayers, SevenOnThreeAndTheWeightOfTheHead) {
  EXPECT_EQ(counts(split_layers(gpt2(7, 96, 61), 3)), (std::vector<int>{3, 2, 2}));
  // GPT-2 124M: the head is worth 5.5 layers, so that the last of two stages takes 3 of 12.
  EXPECT_EQ(counts(split_layers(gpt2(12, 768, 50257), 2)), (std::vector<int>{9, 3}));
  EXPECT_EQ(counts(split_layers(gpt2(12, 768, 256), 4)), (std::vector<int>{3, 3, 3, 3}));
}

TEST(LogicalParameters, CountAndNamesOfGpt2) {
  const ModelConfig m = gpt2(12, 768, 50257);
  EXPECT_EQ(parameter_count(m), 124439808);  // Hugging Face's gpt2
  std::set<std::string> names;
  for (const ParamSpec& spec : logical_parameters(m))
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  for (const char* name : {"embed.tokens.weight", "embed.positions.weight", "layers.11.attention.q.bias",
                           "layers.0.mlp.down.weight", "final_norm.bias"})
    EXPECT_TRUE(names.count(name)) << name;
  EXPECT_FALSE(names.count("lm_head.weight"));
}

TEST(LogicalParameters, DecayIsForMatricesButNotPositions) {
  for (const ParamSpec& spec : logical_parameters(gpt2(2, 96, 61)))
    EXPECT_EQ(spec.decay, spec.global.rank() == 2 && spec.name != "embed.positions.weight") << spec.name;
}

TEST(FlopsPerToken, IsTheFormulaOfTheDesign) {
  const ModelConfig m = gpt2(12, 768, 50257);
  EXPECT_DOUBLE_EQ(flops_per_token(m, 256), 6.0 * (124439808 - 1024 * 768) + 12.0 * 12 * 768 * 256);
}

}  // namespace
}  // namespace triax
