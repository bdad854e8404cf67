#include "engine/hf_names.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <string_view>

#include "core/error.h"
#include "model/gpt.h"

namespace triax {

namespace {

struct Rename {
  std::string_view ours, theirs;
  bool conv = false;  // a Conv1D: the weight is transposed
  int part = 0, parts = 1;
};

// Within a layer.
constexpr std::array<Rename, 8> gpt2_layer = {{{"attention_norm", "ln_1"},
                                               {"attention.q", "attn.c_attn", true, 0, 3},
                                               {"attention.k", "attn.c_attn", true, 1, 3},
                                               {"attention.v", "attn.c_attn", true, 2, 3},
                                               {"attention.out", "attn.c_proj", true},
                                               {"mlp_norm", "ln_2"},
                                               {"mlp.up", "mlp.c_fc", true},
                                               {"mlp.down", "mlp.c_proj", true}}};
constexpr std::array<Rename, 9> llama_layer = {{{"attention_norm", "input_layernorm"},
                                                {"attention.q", "self_attn.q_proj"},
                                                {"attention.k", "self_attn.k_proj"},
                                                {"attention.v", "self_attn.v_proj"},
                                                {"attention.out", "self_attn.o_proj"},
                                                {"mlp_norm", "post_attention_layernorm"},
                                                {"mlp.gate", "mlp.gate_proj"},
                                                {"mlp.up", "mlp.up_proj"},
                                                {"mlp.down", "mlp.down_proj"}}};
// Outside of the layers; the head has no prefix.
constexpr std::array<Rename, 3> gpt2_ends = {
    {{"embed.tokens", "wte"}, {"embed.positions", "wpe"}, {"final_norm", "ln_f"}}};
constexpr std::array<Rename, 2> llama_ends = {{{"embed.tokens", "embed_tokens"}, {"final_norm", "norm"}}};

template <size_t N>
const Rename* find(const std::array<Rename, N>& table, std::string_view name) {
  for (const Rename& r : table)
    if (r.ours == name) return &r;
  return nullptr;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

Shape HfPlace::shape(const Shape& parameter) const {
  Shape s = parameter;
  s[0] *= parts;
  return transposed ? Shape{s[1], s[0]} : s;
}

std::string hf_prefix(const ModelConfig& model) {
  return model.architecture == Architecture::gpt2 ? "transformer." : "model.";
}

HfPlace hf_place(const ModelConfig& model, const std::string& parameter) {
  const bool gpt2 = model.architecture == Architecture::gpt2;
  if (parameter == "lm_head.weight") return {parameter};
  const size_t dot = parameter.rfind('.');
  const std::string stem = parameter.substr(0, dot), kind = parameter.substr(dot + 1);
  const Rename* found = nullptr;
  std::string prefix = hf_prefix(model);
  if (stem.rfind("layers.", 0) == 0) {
    const size_t end = stem.find('.', 7);
    check(end != std::string::npos, "{} has no name at Hugging Face", parameter);
    const std::string number = stem.substr(7, end - 7), rest = stem.substr(end + 1);
    found = gpt2 ? find(gpt2_layer, rest) : find(llama_layer, rest);
    prefix += fmt::format("{}.{}.", gpt2 ? "h" : "layers", number);
  } else {
    found = gpt2 ? find(gpt2_ends, stem) : find(llama_ends, stem);
  }
  check(found != nullptr, "{} has no name at Hugging Face", parameter);
  return {fmt::format("{}{}.{}", prefix, found->theirs, kind), found->conv && kind == "weight", found->part,
          found->parts};
}

std::vector<HfTensor> hf_tensors(const ModelConfig& model) {
  std::vector<HfTensor> out;
  std::map<std::string, size_t> index;  // q's bias comes behind v's weight
  for (const ParamSpec& spec : logical_parameters(model)) {
    const HfPlace place = hf_place(model, spec.name);
    const auto [at, added] = index.insert({place.tensor, out.size()});
    if (added) out.push_back({place.tensor, place.shape(spec.global), place.transposed, {}});
    HfTensor& tensor = out[at->second];
    check(static_cast<int>(tensor.parameters.size()) == place.part, "{} is out of order in {}", spec.name,
          place.tensor);
    tensor.parameters.push_back(spec);
  }
  return out;
}

bool is_hf_constant(const std::string& tensor) {
  return ends_with(tensor, ".attn.bias") || ends_with(tensor, ".attn.masked_bias") ||
         ends_with(tensor, "rotary_emb.inv_freq");
}

}  // namespace triax
