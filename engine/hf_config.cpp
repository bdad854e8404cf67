#include "engine/hf_config.h"

#include <fmt/format.h>

#include <cmath>

#include "checkpoint/file_io.h"
#include "core/config_tree.h"
#include "core/error.h"
#include "core/fields.h"

namespace triax {

namespace {

using nlohmann::json;

/// Reads one config.json; problems are gathered.
class Reader {
 public:
  Reader(const json& config, std::string source) : config_(config), source_(std::move(source)) {}

  HfConfig read() {
    check_family();
    if (family_.empty()) throw_problems();
    for (const auto& [key, value] : config_.items()) take(key, value);
    fill_in();
    throw_problems();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> text, Args&&... args) {
    problems_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  void throw_problems() const {
    if (problems_.empty()) return;
    std::string list;
    for (const std::string& p : problems_) list += "\n  - " + p;
    if (unknown_)
      list +=
          "\n  an unknown key that changes nothing in what the model computes can be taken out of "
          "config.json; docs/huggingface.md lists the known ones";
    fail_usage("{} describes a model that Triax does not compute:{}", source_, list);
  }

  void check_family() {
    const std::string type = config_.contains("model_type") && config_["model_type"].is_string()
                                 ? config_["model_type"].get<std::string>()
                                 : "";
    struct Family {
      const char *type, *with_head, *bare;
    };
    std::string known;
    for (const Family& f :
         {Family{"gpt2", "GPT2LMHeadModel", "GPT2Model"}, Family{"llama", "LlamaForCausalLM", "LlamaModel"},
          Family{"qwen2", "Qwen2ForCausalLM", "Qwen2Model"}}) {
      known += (known.empty() ? "" : ", ") + std::string(f.type);
      if (type != f.type) continue;
      family_ = type;
      if (!config_.contains("architectures") || config_["architectures"].is_null()) continue;
      for (const json& name : config_["architectures"])
        if (name != f.with_head && name != f.bare)
          problem("architectures: {}; it can be {}", name.dump(), f.with_head);
    }
    if (family_.empty()) problem("model_type: \"{}\"; it can be {}", type, known);
  }

  static bool applies(const HfKey& key, const std::string& family) {
    return key.families.empty() || (" " + key.families + " ").find(" " + family + " ") != std::string::npos;
  }
  const HfKey* find(const std::string& key) const {
    for (const HfKey& k : hf_keys())
      if (k.key == key && applies(k, family_)) return &k;
    return nullptr;
  }

  void take(const std::string& key, const json& value) {
    const HfKey* known = find(key);
    if (!known) {
      unknown_ = true;
      return problem("{}: {}: a key that Triax does not know for {}", key, value.dump(), family_);
    }
    if (known->use == HfUse::restricted) return restrict(*known, value);
    if (known->use == HfUse::training && value.is_number() && value.get<double>() != 0)
      out_.notes.push_back(fmt::format("{}: {} says how the model was trained; {}", key, value.dump(),
                                       known->why == "attention is not dropped"
                                           ? "Triax has no dropout of attention"
                                           : "the job's model.hidden_dropout says how it is trained here"));
  }

  void restrict(const HfKey& key, const json& value) {
    const json allowed = json::parse(key.absent);
    const auto fits = [&](const json& v) {
      return std::find(allowed.begin(), allowed.end(), v) != allowed.end();
    };
    if (fits(value)) return;
    if (key.key == "layer_types" && value.is_array()) {
      if (std::all_of(value.begin(), value.end(), fits)) return;
    } else if (key.key == "head_dim") {
      const int64_t hidden = number<int64_t>("hidden_size"), heads = number<int64_t>("num_attention_heads");
      if (value.is_number_integer() && heads > 0 && hidden % heads == 0 && value == hidden / heads) return;
      return problem("head_dim: {}; it can be hidden_size / num_attention_heads alone", value.dump());
    }
    problem("{}: {}; it can be {}", key.key, value.dump(), key.absent);
  }

  // A computed key's value, or transformers' default.
  json value_of(const std::string& key) const {
    const HfKey* known = find(key);
    const bool given = config_.contains(key) && !config_[key].is_null();
    return given ? config_[key] : json::parse(known->absent);
  }
  template <class T>
  T number(const std::string& key) {
    return number<T>(key, value_of(key));
  }
  template <class T>
  T number(const std::string& key, const json& value) {
    const bool fits = std::is_same_v<T, bool>     ? value.is_boolean()
                      : std::is_same_v<T, double> ? value.is_number()
                                                  : value.is_number_integer();
    if (fits) return value.get<T>();
    problem("{}: {}; expected {}", key, value.dump(),
            std::is_same_v<T, bool>     ? "true or false"
            : std::is_same_v<T, double> ? "a number"
                                        : "a whole number");
    return T{};
  }

  void fill_in() {
    ModelConfig& m = out_.model;
    const bool gpt2 = family_ == "gpt2";
    m.architecture = gpt2 ? Architecture::gpt2 : Architecture::llama;
    m.qkv_bias = family_ == "qwen2";
    m.vocab_size = number<int64_t>("vocab_size");
    m.hidden_size = number<int64_t>(gpt2 ? "n_embd" : "hidden_size");
    m.num_hidden_layers = number<int64_t>(gpt2 ? "n_layer" : "num_hidden_layers");
    m.num_attention_heads = number<int64_t>(gpt2 ? "n_head" : "num_attention_heads");
    m.num_key_value_heads = m.num_attention_heads;
    m.max_position_embeddings = number<int64_t>(gpt2 ? "n_positions" : "max_position_embeddings");
    m.tie_word_embeddings = number<bool>("tie_word_embeddings");
    m.initializer_range = number<double>("initializer_range");
    if (gpt2) {
      m.intermediate_size = value_of("n_inner").is_null() ? 4 * m.hidden_size : number<int64_t>("n_inner");
      m.layer_norm_epsilon = number<double>("layer_norm_epsilon");
      return;
    }
    m.intermediate_size = number<int64_t>("intermediate_size");
    // null, written down, means as many as heads; Qwen2's default counts where the key is absent.
    const bool null = config_.contains("num_key_value_heads") && config_["num_key_value_heads"].is_null();
    if (!null && !value_of("num_key_value_heads").is_null())
      m.num_key_value_heads = number<int64_t>("num_key_value_heads");
    m.rms_norm_eps = number<double>("rms_norm_eps");
    m.rope_theta = number<double>("rope_theta");
    const auto given = [this](const char* key) { return config_.contains(key) && !config_[key].is_null(); };
    if (given("rope_scaling") && given("rope_parameters") &&
        config_["rope_scaling"] != config_["rope_parameters"])
      problem("rope_scaling and rope_parameters say different things; leave one of them out");
    if (given("rope_theta") && given("rope_parameters") &&
        config_["rope_parameters"].contains("rope_theta") &&
        config_["rope_parameters"]["rope_theta"] != config_["rope_theta"])
      problem("rope_theta: {} is not rope_parameters.rope_theta: {}; leave one of them out",
              config_["rope_theta"].dump(), config_["rope_parameters"]["rope_theta"].dump());
    for (const char* key : {"rope_scaling", "rope_parameters"})
      if (given(key)) rope(key, config_[key]);
  }

  // transformers 4 has rope_scaling beside rope_theta, 5 has rope_parameters with rope_theta in it.
  void rope(const std::string& section, const json& j) {
    if (!j.is_object()) return problem("{}: {}; expected an object", section, j.dump());
    RopeScaling& r = out_.model.rope_scaling;
    const json type = j.contains("rope_type") ? j["rope_type"] : j.value("type", json("default"));
    if (type == "default")
      r = {};
    else if (type == "linear")
      r.rope_type = RopeType::linear;
    else if (type == "llama3")
      r.rope_type = RopeType::llama3;
    else
      return problem("{}.rope_type: {}; it can be \"default\", \"linear\" or \"llama3\"", section,
                     type.dump());
    const bool llama3 = r.rope_type == RopeType::llama3;
    if (llama3) r.original_max_position_embeddings = out_.model.max_position_embeddings;
    for (const auto& [key, value] : j.items()) {
      const std::string full = section + "." + key;
      if (key == "rope_type" || key == "type") continue;
      if (key == "rope_theta")
        out_.model.rope_theta = number<double>(full, value);
      else if (key == "partial_rotary_factor" && value == 1.0)
        continue;
      else if (key == "factor" && r.rope_type != RopeType::plain)
        r.factor = number<double>(full, value);
      else if (key == "low_freq_factor" && llama3)
        r.low_freq_factor = number<double>(full, value);
      else if (key == "high_freq_factor" && llama3)
        r.high_freq_factor = number<double>(full, value);
      else if (key == "original_max_position_embeddings" && llama3)
        r.original_max_position_embeddings = number<int64_t>(full, value);
      else
        problem("{}: {}: a key that Triax does not know for the type {}", full, value.dump(), type.dump());
    }
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
      if ((llama3 || (r.rope_type == RopeType::linear && std::string(key) == "factor")) && !j.contains(key))
        problem("{}.{}: missing, which {} needs", section, key, type.dump());
  }

  const json& config_;
  std::string source_, family_;
  HfConfig out_;
  std::vector<std::string> problems_;
  bool unknown_ = false;  // whether one is about a key that is in no table
};

}  // namespace

HfConfig parse_hf_config(const json& config, const std::string& source) {
  if (!config.is_object()) fail_usage("{} is no JSON object", source);
  return Reader(config, source).read();
}

HfConfig read_hf_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none)) fail_usage("{}: no such folder", folder.string());
  if (!std::filesystem::exists(path, none))
    fail_usage("{} is no folder of a Hugging Face model: config.json is missing", folder.string());
  json config;
  try {
    config = json::parse(read_file(path));
  } catch (const json::exception& e) {
    fail_usage("{} is not JSON: {}", path.string(), e.what());
  }
  return parse_hf_config(config, path.string());
}

namespace {

nlohmann::ordered_json gpt2_config(const ModelConfig& m) {
  return {{"n_positions", m.max_position_embeddings},
          {"n_embd", m.hidden_size},
          {"n_layer", m.num_hidden_layers},
          {"n_head", m.num_attention_heads},
          {"n_inner", m.intermediate_size},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", m.hidden_dropout},
          {"embd_pdrop", m.hidden_dropout},
          {"attn_pdrop", 0.0},
          {"layer_norm_epsilon", m.layer_norm_epsilon},
          {"scale_attn_weights", true}};
}

nlohmann::ordered_json rope_section(const RopeScaling& r) {
  if (r.rope_type == RopeType::plain) return nullptr;
  if (r.rope_type == RopeType::linear) return {{"rope_type", "linear"}, {"factor", r.factor}};
  return {{"rope_type", "llama3"},
          {"factor", r.factor},
          {"low_freq_factor", r.low_freq_factor},
          {"high_freq_factor", r.high_freq_factor},
          {"original_max_position_embeddings", r.original_max_position_embeddings}};
}

nlohmann::ordered_json llama_config(const ModelConfig& m) {
  nlohmann::ordered_json j{{"hidden_size", m.hidden_size},
                           {"num_hidden_layers", m.num_hidden_layers},
                           {"num_attention_heads", m.num_attention_heads},
                           {"num_key_value_heads", m.num_key_value_heads},
                           {"intermediate_size", m.intermediate_size},
                           {"max_position_embeddings", m.max_position_embeddings},
                           {"hidden_act", "silu"},
                           {"rms_norm_eps", m.rms_norm_eps},
                           {"rope_theta", m.rope_theta},
                           {"rope_scaling", rope_section(m.rope_scaling)},
                           {"attention_dropout", 0.0}};
  if (m.qkv_bias) {
    j["use_sliding_window"] = false;
  } else {
    j["head_dim"] = m.hidden_size / m.num_attention_heads;
    j["attention_bias"] = j["mlp_bias"] = false;
  }
  return j;
}

}  // namespace

nlohmann::ordered_json to_hf_config(const ModelConfig& m, const std::string& dtype) {
  const bool gpt2 = m.architecture == Architecture::gpt2;
  nlohmann::ordered_json j{{"architectures",
                            {gpt2         ? "GPT2LMHeadModel"
                             : m.qkv_bias ? "Qwen2ForCausalLM"
                                          : "LlamaForCausalLM"}},
                           {"model_type", gpt2         ? "gpt2"
                                          : m.qkv_bias ? "qwen2"
                                                       : "llama"},
                           {"vocab_size", m.vocab_size}};
  j.update(gpt2 ? gpt2_config(m) : llama_config(m));
  j["initializer_range"] = m.initializer_range;
  j["tie_word_embeddings"] = m.tie_word_embeddings;
  j["use_cache"] = true;
  j["torch_dtype"] = dtype;
  return j;
}

}  // namespace triax
