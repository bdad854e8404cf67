#include "model/config.h"

#include <limits>

#include "core/fields.h"

namespace triax {

const FieldTable<RopeScaling>& fields_of(const RopeScaling*) {
  static const FieldTable<RopeScaling> table = [] {
    using C = RopeScaling;
    FieldTable<C> t;
    t.add("rope_type", &C::rope_type,
          "How: default, not at all; linear, all frequencies divided by the factor; llama3, the low ones.")
        .one_of({"default", "linear", "llama3"});
    t.add("factor", &C::factor, "By how much positions reach further.").at_least(1);
    t.add("low_freq_factor", &C::low_freq_factor,
          "Frequencies of fewer turns in the original context are divided by the factor (llama3).")
        .above(0);
    t.add("high_freq_factor", &C::high_freq_factor,
          "Frequencies of more turns in the original context stay (llama3).")
        .above(0);
    t.add("original_max_position_embeddings", &C::original_max_position_embeddings,
          "The original context, in tokens (llama3).")
        .at_least(0)
        .at_most(std::numeric_limits<int32_t>::max());
    return t;
  }();
  return table;
}

const FieldTable<ModelConfig>& fields_of(const ModelConfig*) {
  static const FieldTable<ModelConfig> table = [] {
    using C = ModelConfig;
    constexpr double largest = std::numeric_limits<int32_t>::max();  // token ids and extents fit in 32 bits
    FieldTable<C> t;
    t.add("from", &C::from,
          "Folder of a Hugging Face model (config.json, safetensors): the model's keys come from it, and the "
          "weights of a run that begins anew.")
        .derived("none");
    t.add("architecture", &C::architecture, "Which model: GPT-2 or LLaMA, as Hugging Face computes them.")
        .one_of({"gpt2", "llama"});
    t.add("vocab_size", &C::vocab_size,
          "Number of tokens in the vocabulary; any number, padded only in memory.")
        .must_be_given_unless("from")
        .at_least(1)
        .at_most(largest);
    t.add("hidden_size", &C::hidden_size, "Width of the residual stream.")
        .must_be_given_unless("from")
        .at_least(1)
        .at_most(largest);
    t.add("num_hidden_layers", &C::num_hidden_layers, "Number of transformer layers.")
        .must_be_given_unless("from")
        .at_least(1)
        .at_most(1000000);
    t.add("num_attention_heads", &C::num_attention_heads, "Number of attention heads; divides hidden_size.")
        .must_be_given_unless("from")
        .at_least(1)
        .at_most(1000000);
    t.add("num_key_value_heads", &C::num_key_value_heads,
          "Number of key and value heads (llama): fewer than heads is GQA, 1 is MQA.")
        .derived("num_attention_heads")
        .at_least(1)
        .at_most(1000000);
    t.add("intermediate_size", &C::intermediate_size, "Width of the feed-forward half of a layer.")
        .must_be_given_unless("from")
        .at_least(1)
        .at_most(largest);
    t.add("max_position_embeddings", &C::max_position_embeddings,
          "Longest sequence the model is made for; gpt2 has this many learned positions.")
        .must_be_given_unless("from")
        .at_least(1)
        .at_most(largest);
    t.add("tie_word_embeddings", &C::tie_word_embeddings, "Whether the head uses the embedding's weight.")
        .derived("true for gpt2, false for llama");
    t.add("initializer_range", &C::initializer_range, "Standard deviation of the initial matrices.")
        .at_least(0);
    t.add("layer_norm_epsilon", &C::layer_norm_epsilon, "Added to the variance in LayerNorm (gpt2).")
        .above(0);
    t.add("rms_norm_eps", &C::rms_norm_eps, "Added to the mean square in RMSNorm (llama).").above(0);
    t.add("rope_theta", &C::rope_theta, "Base of the rotary positions' wavelengths (llama).").above(0);
    t.add("rope_scaling", &C::rope_scaling, "Rotary positions for longer contexts (llama).");
    t.add("qkv_bias", &C::qkv_bias,
          "Biases on the query, key and value projections (llama; Qwen2 has them).");
    t.add("hidden_dropout", &C::hidden_dropout,
          "Probability of dropping an element of embedding and residuals.")
        .at_least(0)
        .below(1);
    return t;
  }();
  return table;
}

}  // namespace triax
