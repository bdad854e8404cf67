#pragma once

#include <cstdint>
#include <string>

namespace triax {

template <class S>
class FieldTable;

enum class Architecture { gpt2, llama };

enum class RopeType { plain, linear, llama3 };

/// The job file's `model.rope_scaling`: Hugging Face's keys; how rotary positions reach further than the
/// sequences they were first trained on.
struct RopeScaling {
  RopeType rope_type = RopeType::plain;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  int64_t original_max_position_embeddings = 0;          ///< llama3
  bool operator==(const RopeScaling&) const = default;
};

/// The job file's `model`: keys and meanings of Hugging Face's LlamaConfig, for both architectures.
struct ModelConfig {
  std::string
      from;  ///< a Hugging Face folder that shape and initial weights come from; absolute; empty: none
  Architecture architecture = Architecture::gpt2;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  ///< default: num_attention_heads
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = true;  ///< default: true for gpt2, false for llama
  double initializer_range = 0.02;
  double layer_norm_epsilon = 1e-5;  ///< gpt2
  double rms_norm_eps = 1e-5;        ///< llama
  double rope_theta = 10000.0;       ///< llama
  RopeScaling rope_scaling;          ///< llama
  bool qkv_bias = false;             ///< llama: the shape of Qwen2
  double hidden_dropout = 0.0;
  bool operator==(const ModelConfig&) const = default;
};

const FieldTable<RopeScaling>& fields_of(const RopeScaling*);
const FieldTable<ModelConfig>& fields_of(const ModelConfig*);

}  // namespace triax
