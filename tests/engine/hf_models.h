#pragma once

#include "support/hf_folder.h"

namespace triax::test {

/// A small model as transformers writes it, by names and shapes written down here: test_value()s as weights.
struct HfModel {
  nlohmann::json config;
  std::vector<SafeTensorsWriter::Item> tensors;

  void write(const std::filesystem::path& folder, StoredType type = StoredType::f32) const {
    std::filesystem::create_directories(folder);
    write_content(folder / "config.json", config.dump(1));
    std::filesystem::remove(folder / "model.safetensors");
    write_tensors(folder / "model.safetensors", tensors, type);
  }
};

inline HfModel hf_gpt2() {
  HfModel m{{{"architectures", {"GPT2LMHeadModel"}},
             {"model_type", "gpt2"},
             {"vocab_size", 61},
             {"n_positions", 16},
             {"n_embd", 24},
             {"n_layer", 2},
             {"n_head", 4},
             {"layer_norm_epsilon", 1e-3},
             {"resid_pdrop", 0.1},
             {"bos_token_id", 0}},
            {{"transformer.wte.weight", {61, 24}}, {"transformer.wpe.weight", {16, 24}}}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "transformer.h." + std::to_string(layer) + ".";
    for (const auto& [name, shape] :
         std::vector<std::pair<std::string, std::vector<int64_t>>>{{"ln_1.weight", {24}},
                                                                   {"ln_1.bias", {24}},
                                                                   {"attn.c_attn.weight", {24, 72}},
                                                                   {"attn.c_attn.bias", {72}},
                                                                   {"attn.c_proj.weight", {24, 24}},
                                                                   {"attn.c_proj.bias", {24}},
                                                                   {"ln_2.weight", {24}},
                                                                   {"ln_2.bias", {24}},
                                                                   {"mlp.c_fc.weight", {24, 96}},
                                                                   {"mlp.c_fc.bias", {96}},
                                                                   {"mlp.c_proj.weight", {96, 24}},
                                                                   {"mlp.c_proj.bias", {24}}})
      m.tensors.push_back({at + name, shape});
  }
  m.tensors.push_back({"transformer.ln_f.weight", {24}});
  m.tensors.push_back({"transformer.ln_f.bias", {24}});
  return m;
}

/// `type`: "llama" or "qwen2"; 4 heads of 6, 2 key-value heads.
inline HfModel hf_llama(const std::string& type, bool tied) {
  const bool qwen2 = type == "qwen2";
  HfModel m{{{"architectures", {qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
             {"model_type", type},
             {"vocab_size", 61},
             {"hidden_size", 24},
             {"intermediate_size", 40},
             {"num_hidden_layers", 2},
             {"num_attention_heads", 4},
             {"num_key_value_heads", 2},
             {"max_position_embeddings", 32},
             {"rms_norm_eps", 1e-6},
             {"rope_theta", 1e6},
             {"hidden_act", "silu"},
             {"tie_word_embeddings", tied},
             {"torch_dtype", "float32"}},
            {{"model.embed_tokens.weight", {61, 24}}}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    m.tensors.push_back({at + "input_layernorm.weight", {24}});
    for (const auto& [name, rows] : {std::pair{"q", 24}, std::pair{"k", 12}, std::pair{"v", 12}}) {
      m.tensors.push_back({at + "self_attn." + name + "_proj.weight", {rows, 24}});
      if (qwen2) m.tensors.push_back({at + "self_attn." + name + "_proj.bias", {rows}});
    }
    m.tensors.push_back({at + "self_attn.o_proj.weight", {24, 24}});
    m.tensors.push_back({at + "post_attention_layernorm.weight", {24}});
    m.tensors.push_back({at + "mlp.gate_proj.weight", {40, 24}});
    m.tensors.push_back({at + "mlp.up_proj.weight", {40, 24}});
    m.tensors.push_back({at + "mlp.down_proj.weight", {24, 40}});
  }
  m.tensors.push_back({"model.norm.weight", {24}});
  if (!tied) m.tensors.push_back({"lm_head.weight", {61, 24}});
  return m;
}

inline nlohmann::json llama3_scaling() {
  return {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 16}};
}

}  // namespace triax::test
