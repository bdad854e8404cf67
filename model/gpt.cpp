#include "model/gpt.h"

#include <algorithm>
#include <limits>

#include "model/block.h"
#include "model/ends.h"

namespace triax {

namespace {

// Matrix elements of one layer: its work per token is proportional to them.
double layer_work(const ModelConfig& m) {
  const double h = static_cast<double>(m.hidden_size), head = h / m.num_attention_heads;
  const double attention = h * (2 * h + 2 * m.num_key_value_heads * head);
  return attention + h * m.intermediate_size * (m.architecture == Architecture::llama ? 3 : 2);
}

double head_work(const ModelConfig& m) {
  return static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
}

}  // namespace

std::vector<int> split_layers(const ModelConfig& model, int parts) {
  const int layers = static_cast<int>(model.num_hidden_layers);
  check(parts >= 1 && parts <= layers, "{} layers can't be cut into {} parts", layers, parts);
  const double layer = layer_work(model), head = head_work(model);
  auto work = [&](int part, int count) { return count * layer + (part == parts - 1 ? head : 0.0); };

  // The last part takes as many layers as make the largest part smallest; the others share the rest evenly,
  // larger ones first.
  int last = 1;
  double best = std::numeric_limits<double>::max();
  for (int l = 1; l <= layers - (parts - 1); ++l) {
    const int rest = layers - l, widest = parts > 1 ? (rest + parts - 2) / (parts - 1) : 0;
    if (parts == 1 && rest) continue;
    const double largest = std::max(work(parts - 1, l), parts > 1 ? work(0, widest) : 0.0);
    if (largest <= best) best = largest, last = l;
  }
  std::vector<int> first{0};
  for (int part = 0; part < parts - 1; ++part) {
    const int rest = layers - last;
    first.push_back(first.back() + rest / (parts - 1) + (part < rest % (parts - 1) ? 1 : 0));
  }
  first.push_back(layers);
  return first;
}

std::vector<PartWork> part_work(const ModelConfig& model, int parts) {
  const std::vector<int> first = split_layers(model, parts);
  std::vector<PartWork> work;
  for (size_t part = 0; part + 1 < first.size(); ++part)
    work.push_back({(first[part + 1] - first[part]) * layer_work(model), 0});
  work.back().head = head_work(model);
  return work;
}

std::vector<std::unique_ptr<Module>> make_part(const ModelConfig& model, int part, int parts, int tensor) {
  const std::vector<int> first = split_layers(model, parts);
  std::vector<std::unique_ptr<Module>> modules;
  if (part == 0) modules.push_back(std::make_unique<Embedding>(model));
  for (int layer = first[part]; layer < first[part + 1]; ++layer)
    modules.push_back(std::make_unique<Block>(layer, model, tensor));
  if (part == parts - 1) modules.push_back(std::make_unique<Head>(model));
  return modules;
}

std::vector<ParamSpec> logical_parameters(const ModelConfig& model) {
  const Grid one({{"tp", 1}});
  const auto device = make_null_device();
  ParamStore params(one, 0, *device);
  for (auto& module : make_part(model, 0, 1, 1)) module->declare(params);
  std::vector<ParamSpec> specs;
  for (const auto& entry : params.entries())
    if (entry.primary < 0) specs.push_back(entry.spec);
  return specs;
}

int64_t parameter_count(const ModelConfig& model) {
  int64_t n = 0;
  for (const ParamSpec& spec : logical_parameters(model)) n += spec.global.numel();
  return n;
}

double flops_per_token(const ModelConfig& model, int64_t sequence_length) {
  int64_t n = parameter_count(model);
  if (model.architecture == Architecture::gpt2) n -= model.max_position_embeddings * model.hidden_size;
  return 6.0 * static_cast<double>(n) + 12.0 * static_cast<double>(model.num_hidden_layers) *
                                            static_cast<double>(model.hidden_size) *
                                            static_cast<double>(sequence_length);
}

MeshNeeds mesh_needs(const ModelConfig& model, int tensor) {
  MeshNeeds needs;
  needs.tensor_copies = std::max(1, tensor / static_cast<int>(model.num_key_value_heads));
  needs.tied = model.tie_word_embeddings;
  return needs;
}

}  // namespace triax
