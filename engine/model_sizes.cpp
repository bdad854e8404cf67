#include "engine/model_sizes.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace triax {

namespace {

constexpr int64_t thousand = 1000, million = thousand * thousand;

ModelSize gpt2(std::string name, std::vector<std::string> aliases, std::string title, int64_t layers,
               int64_t hidden, int64_t heads, int64_t positions, int64_t batch_tokens, double lr) {
  ModelConfig m;
  m.architecture = Architecture::gpt2;
  m.vocab_size = 50257;
  m.hidden_size = hidden;
  m.num_hidden_layers = layers;
  m.num_attention_heads = m.num_key_value_heads = heads;
  m.intermediate_size = 4 * hidden;
  m.max_position_embeddings = positions;
  m.tie_word_embeddings = true;
  return {"gpt2", std::move(name), std::move(aliases), std::move(title), m, positions, batch_tokens, lr};
}

struct Llama {
  int64_t layers, hidden, heads, kv_heads, intermediate, vocabulary, positions;
  bool tied = false;
  double theta = 10000, epsilon = 1e-5;
};

ModelSize llama(std::string name, std::vector<std::string> aliases, std::string title, const Llama& shape,
                int64_t batch_tokens, double lr) {
  ModelConfig m;
  m.architecture = Architecture::llama;
  m.vocab_size = shape.vocabulary;
  m.hidden_size = shape.hidden;
  m.num_hidden_layers = shape.layers;
  m.num_attention_heads = shape.heads;
  m.num_key_value_heads = shape.kv_heads;
  m.intermediate_size = shape.intermediate;
  m.max_position_embeddings = shape.positions;
  m.tie_word_embeddings = shape.tied;
  m.rope_theta = shape.theta;
  m.rms_norm_eps = shape.epsilon;
  return {"llama", std::move(name), std::move(aliases), std::move(title),
          m,       shape.positions, batch_tokens,       lr};
}

// LLaMA with biases on q, k and v. Pre-trained mostly on sequences of 4096.
ModelSize qwen2(std::string name, std::vector<std::string> aliases, std::string title, Llama shape,
                int64_t batch_tokens, double lr) {
  shape.theta = 1000000;
  shape.epsilon = 1e-6;
  ModelSize size = llama(std::move(name), std::move(aliases), std::move(title), shape, batch_tokens, lr);
  size.family = "qwen2";
  size.model.qkv_bias = true;
  size.sequence_length = 4096;
  return size;
}

std::string names_of(const std::string& family) {
  std::vector<std::string> names;
  for (const ModelSize& s : model_sizes()) {
    if (s.family != family) continue;
    names.push_back(s.name);
    for (const std::string& alias : s.aliases) names.back() += fmt::format(" (or {})", alias);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const std::vector<ModelSize>& model_sizes() {
  static const std::vector<ModelSize> sizes{
      gpt2("124m", {"125m"}, "GPT-2 small", 12, 768, 12, 1024, 500 * thousand, 6.0e-4),
      gpt2("355m", {"350m"}, "GPT-2 medium", 24, 1024, 16, 1024, 500 * thousand, 3.0e-4),
      gpt2("774m", {"760m"}, "GPT-2 large", 36, 1280, 20, 1024, 500 * thousand, 2.5e-4),
      gpt2("1.5b", {"1b"}, "GPT-2 XL", 48, 1600, 25, 1024, million, 2.0e-4),
      gpt2("6.7b", {"7b"}, "GPT-3 6.7B", 32, 4096, 32, 2048, 2 * million, 1.2e-4),
      gpt2("13b", {}, "GPT-3 13B", 40, 5120, 40, 2048, 2 * million, 1.0e-4),
      gpt2("175b", {}, "GPT-3 175B", 96, 12288, 96, 2048, 3200 * thousand, 0.6e-4),
      llama("135m", {"124m", "125m"}, "SmolLM 135M", {30, 576, 9, 3, 1536, 49152, 2048, true}, million,
            3.0e-3),
      llama("360m", {"350m"}, "SmolLM 360M", {32, 960, 15, 5, 2560, 49152, 2048, true}, million, 3.0e-3),
      llama("1.1b", {"1b"}, "TinyLlama 1.1B", {22, 2048, 32, 4, 5632, 32000, 2048}, 2 * million, 4.0e-4),
      llama("7b", {}, "LLaMA-2 7B", {32, 4096, 32, 32, 11008, 32000, 4096}, 4 * million, 3.0e-4),
      llama("8b", {}, "Llama 3 8B", {32, 4096, 32, 8, 14336, 128256, 8192, false, 500000}, 4 * million,
            3.0e-4),
      llama("13b", {}, "LLaMA-2 13B", {40, 5120, 40, 40, 13824, 32000, 4096}, 4 * million, 3.0e-4),
      llama("70b", {}, "LLaMA-2 70B", {80, 8192, 64, 8, 28672, 32000, 4096}, 4 * million, 1.5e-4),
      llama("405b", {}, "Llama 3.1 405B", {126, 16384, 128, 8, 53248, 128256, 8192, false, 500000},
            16 * million, 8.0e-5),
      qwen2("0.5b", {"500m"}, "Qwen2 0.5B", {24, 896, 14, 2, 4864, 151936, 131072, true}, 4 * million,
            3.0e-4),
      qwen2("1.5b", {"1b"}, "Qwen2 1.5B", {28, 1536, 12, 2, 8960, 151936, 131072, true}, 4 * million, 3.0e-4),
      qwen2("7b", {}, "Qwen2 7B", {28, 3584, 28, 4, 18944, 152064, 131072}, 4 * million, 3.0e-4),
      qwen2("72b", {"70b"}, "Qwen2 72B", {80, 8192, 64, 8, 29568, 152064, 131072}, 4 * million, 1.5e-4),
  };
  return sizes;
}

std::vector<std::string> model_families() {
  std::vector<std::string> families;
  for (const ModelSize& s : model_sizes())
    if (std::find(families.begin(), families.end(), s.family) == families.end()) families.push_back(s.family);
  return families;
}

const ModelSize& model_size(const std::string& family, const std::string& size) {
  const std::vector<std::string> families = model_families();
  if (std::find(families.begin(), families.end(), family) == families.end())
    fail_usage("--for {}: not a family that this version computes; it can be {}", family,
               fmt::join(families, ", "));
  for (const ModelSize& s : model_sizes())
    if (s.family == family &&
        (s.name == size || std::find(s.aliases.begin(), s.aliases.end(), size) != s.aliases.end()))
      return s;
  fail_usage("--size {}: no published {} has this size; it can be {}", size, family, names_of(family));
}

}  // namespace triax
