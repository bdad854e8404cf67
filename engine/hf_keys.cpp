#include <fmt/format.h>

#include "engine/hf_config.h"

namespace triax {

namespace {

constexpr auto gpt2 = "gpt2", llama = "llama", qwen2 = "qwen2", rotary = "llama qwen2";

std::vector<HfKey> computed_keys() {
  const HfUse use = HfUse::computed;
  return {
      {"vocab_size", gpt2, use, "vocab_size", "50257"},
      {"vocab_size", llama, use, "vocab_size", "32000"},
      {"vocab_size", qwen2, use, "vocab_size", "151936"},
      {"n_embd", gpt2, use, "hidden_size", "768"},
      {"hidden_size", rotary, use, "hidden_size", "4096"},
      {"n_layer", gpt2, use, "num_hidden_layers", "12"},
      {"num_hidden_layers", rotary, use, "num_hidden_layers", "32"},
      {"n_head", gpt2, use, "num_attention_heads", "12"},
      {"num_attention_heads", rotary, use, "num_attention_heads", "32"},
      {"num_key_value_heads", llama, use, "num_key_value_heads", "null"},
      {"num_key_value_heads", qwen2, use, "num_key_value_heads", "32"},
      {"n_inner", gpt2, use, "intermediate_size", "null"},
      {"intermediate_size", llama, use, "intermediate_size", "11008"},
      {"intermediate_size", qwen2, use, "intermediate_size", "22016"},
      {"n_positions", gpt2, use, "max_position_embeddings", "1024"},
      {"max_position_embeddings", llama, use, "max_position_embeddings", "2048"},
      {"max_position_embeddings", qwen2, use, "max_position_embeddings", "32768"},
      {"tie_word_embeddings", gpt2, use, "tie_word_embeddings", "true"},
      {"tie_word_embeddings", rotary, use, "tie_word_embeddings", "false"},
      {"initializer_range", "", use, "initializer_range", "0.02"},
      {"layer_norm_epsilon", gpt2, use, "layer_norm_epsilon", "1e-5"},
      {"rms_norm_eps", rotary, use, "rms_norm_eps", "1e-6"},
      {"rope_theta", rotary, use, "rope_theta", "10000.0"},
      {"rope_scaling", rotary, use, "rope_scaling", "null", "rope_type default, linear or llama3"},
      {"rope_parameters", rotary, use, "rope_scaling and rope_theta", "null",
       "transformers 5's form of both"},
  };
}

std::vector<HfKey> restricted_keys() {
  const HfUse use = HfUse::restricted;
  return {
      {"activation_function", gpt2, use, "", R"(["gelu_new", "gelu_pytorch_tanh"])"},
      {"scale_attn_weights", gpt2, use, "", "[true]"},
      {"scale_attn_by_inverse_layer_idx", gpt2, use, "", "[false]"},
      {"reorder_and_upcast_attn", gpt2, use, "", "[false]"},
      {"hidden_act", rotary, use, "", R"(["silu", "swish"])"},
      {"attention_bias", rotary, use, "", "[false]"},
      {"mlp_bias", rotary, use, "", "[false]"},
      {"use_sliding_window", qwen2, use, "", "[false]"},
      {"use_mrope", qwen2, use, "", "[false]"},
      {"rope_interleaved", rotary, use, "", "[false]"},
      {"partial_rotary_factor", rotary, use, "", "[1.0]"},
      {"layer_types", "", use, "", R"([null, "full_attention"])", "in each layer"},
      {"head_dim", rotary, use, "", "[null]", "or hidden_size / num_attention_heads"},
      {"add_cross_attention", "", use, "", "[false]"},
      {"cross_attention_hidden_size", "", use, "", "[null]"},
      {"is_encoder_decoder", "", use, "", "[false]"},
      {"tie_encoder_decoder", "", use, "", "[false]"},
      {"pruned_heads", "", use, "", "[null, {}]"},
      {"quantization_config", "", use, "", "[null]"},
  };
}

std::vector<HfKey> other_keys() {
  std::vector<HfKey> keys = {
      {"resid_pdrop", gpt2, HfUse::training, "", "", "`model.hidden_dropout`"},
      {"embd_pdrop", gpt2, HfUse::training, "", "", "`model.hidden_dropout`"},
      {"attn_pdrop", gpt2, HfUse::training, "", "", "attention is not dropped"},
      {"attention_dropout", rotary, HfUse::training, "", "", "attention is not dropped"},
      {"sliding_window", qwen2, HfUse::irrelevant, "", "", "belongs to use_sliding_window"},
      {"max_window_layers", qwen2, HfUse::irrelevant, "", "", "belongs to use_sliding_window"},
      {"pretraining_tp", llama, HfUse::irrelevant, "", "", "how transformers cuts its products"},
      {"max_sequence_length", llama, HfUse::irrelevant, "", "",
       "of old versions, as max_position_embeddings"},
      {"is_llama_config", rotary, HfUse::irrelevant, "", "", "where the file comes from"},
      {"n_ctx", gpt2, HfUse::irrelevant, "", "", "of old versions, as n_positions"},
      {"output_past", gpt2, HfUse::irrelevant, "", "", "of old versions, as use_cache"},
      {"n_special", gpt2, HfUse::irrelevant, "", "", "of old versions; vocab_size counts all tokens"},
      {"predict_special_tokens", gpt2, HfUse::irrelevant, "", "",
       "of old versions; all tokens are predicted"},
  };
  for (const char* key : {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                          "summary_first_dropout"})
    keys.push_back({key, gpt2, HfUse::irrelevant, "", "", "of another head"});
  // How text becomes tokens, how text is generated, how the library runs, where the model comes from.
  for (const char* key : {"model_type",
                          "architectures",
                          "_name_or_path",
                          "name_or_path",
                          "transformers_version",
                          "auto_map",
                          "torch_dtype",
                          "dtype",
                          "use_cache",
                          "bos_token_id",
                          "eos_token_id",
                          "pad_token_id",
                          "sep_token_id",
                          "unk_token_id",
                          "decoder_start_token_id",
                          "tokenizer_class",
                          "prefix",
                          "task_specific_params",
                          "problem_type",
                          "id2label",
                          "label2id",
                          "num_labels",
                          "_num_labels",
                          "finetuning_task",
                          "is_decoder",
                          "output_attentions",
                          "output_hidden_states",
                          "return_dict",
                          "use_return_dict",
                          "max_length",
                          "min_length",
                          "do_sample",
                          "early_stopping",
                          "num_beams",
                          "num_beam_groups",
                          "diversity_penalty",
                          "temperature",
                          "top_k",
                          "top_p",
                          "typical_p",
                          "repetition_penalty",
                          "length_penalty",
                          "no_repeat_ngram_size",
                          "encoder_no_repeat_ngram_size",
                          "bad_words_ids",
                          "num_return_sequences",
                          "output_scores",
                          "return_dict_in_generate",
                          "forced_bos_token_id",
                          "forced_eos_token_id",
                          "remove_invalid_values",
                          "exponential_decay_length_penalty",
                          "suppress_tokens",
                          "begin_suppress_tokens",
                          "chunk_size_feed_forward",
                          "gradient_checkpointing",
                          "torchscript",
                          "tf_legacy_loss",
                          "use_bfloat16",
                          "attn_implementation",
                          "_attn_implementation",
                          "_attn_implementation_autoset",
                          "_attn_implementation_internal",
                          "_flash_attn_2_enabled",
                          "_commit_hash",
                          "transformers.js_config",
                          "unsloth_fixed",
                          "unsloth_version"})
    keys.push_back({key, "", HfUse::irrelevant, "", ""});
  return keys;
}

std::string described(const HfKey& key) {
  switch (key.use) {
    case HfUse::computed:
      return fmt::format("`{}`{}; absent: `{}`", key.ours, key.why.empty() ? "" : ": " + key.why, key.absent);
    case HfUse::restricted:
      return fmt::format("`{}`{}", key.absent, key.why.empty() ? "" : " " + key.why);
    default:
      return key.why;
  }
}

}  // namespace

const std::vector<HfKey>& hf_keys() {
  static const std::vector<HfKey> keys = [] {
    std::vector<HfKey> all = computed_keys();
    for (auto* more : {&restricted_keys, &other_keys})
      for (HfKey& key : more()) all.push_back(std::move(key));
    return all;
  }();
  return keys;
}

std::string hf_key_table() {
  static constexpr const char* titles[] = {"computed", "only these values", "the job's matter", "irrelevant"};
  std::string text = "| config.json | of | use | what becomes of it |\n|---|---|---|---|\n", rest;
  for (const HfKey& key : hf_keys())
    if (key.use == HfUse::irrelevant && key.why.empty())
      rest += fmt::format("{}`{}`", rest.empty() ? "" : ", ", key.key);
    else
      text += fmt::format("| `{}` | {} | {} | {} |\n", key.key, key.families.empty() ? "all" : key.families,
                          titles[static_cast<size_t>(key.use)], described(key));
  return text + "\nAllowed and without meaning for what the model computes: " + rest + ".\n";
}

}  // namespace triax
