#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config.h"

namespace triax {

/// What Triax makes of a key of config.json.
enum class HfUse {
  computed,    ///< becomes a key of the job's `model`
  restricted,  ///< one of a few values is what Triax computes; others are refused by name
  training,    ///< how it was trained; the job's own keys say that
  irrelevant,  ///< says nothing about what the model computes
};

/// One key of config.json; keys that are in no table are refused by name.
struct HfKey {
  std::string key;
  std::string families;  ///< of "gpt2 llama qwen2"; empty: all
  HfUse use;
  std::string ours;    ///< computed: the key of `model` without the section
  std::string absent;  ///< computed: transformers' default, JSON; restricted: the values allowed, a JSON list
  std::string why = {};  ///< for the table in the documentation
};
const std::vector<HfKey>& hf_keys();
/// The table of docs/huggingface.md.
std::string hf_key_table();

/// A model as config.json describes it.
struct HfConfig {
  ModelConfig model;               ///< complete but for `from`
  std::vector<std::string> notes;  ///< what is left to the job: a sentence each
};

/// Reads <folder>/config.json of GPT2LMHeadModel, LlamaForCausalLM or Qwen2ForCausalLM, of transformers 4 or
/// 5. Throws Error(usage) that lists every key that Triax does not compute.
HfConfig read_hf_config(const std::filesystem::path& folder);
HfConfig parse_hf_config(const nlohmann::json& config, const std::string& source);

/// The inverse: config.json of a model, for transformers 4 and 5. `dtype`: "float32", ...
nlohmann::ordered_json to_hf_config(const ModelConfig& model, const std::string& dtype);

}  // namespace triax
