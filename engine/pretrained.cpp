#include "engine/pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "checkpoint/agree.h"
#include "core/fields.h"
#include "model/gpt.h"

namespace triax {

namespace {

constexpr int64_t block_elements = int64_t{1} << 20;  // that are held at a time: 4 MiB

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<int64_t> extents(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

}  // namespace

PretrainedFolder::PretrainedFolder(const std::filesystem::path& folder)
    : config_(read_hf_config(folder)), weights_(folder) {
  find_tensors();
}

void PretrainedFolder::find_tensors() {
  const ModelConfig& m = config_.model;
  // A bare model (GPT2Model, LlamaModel) was saved without the prefix; its head can only be the table.
  const std::string prefix = hf_prefix(m);
  const auto bare = [&](const std::string& name) {
    return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
  };
  const std::string table = hf_place(m, "embed.tokens.weight").tensor;
  const bool has_prefix = weights_.find(table) != nullptr || weights_.find(bare(table)) == nullptr;

  std::vector<std::string> problems;
  std::set<std::string> used;
  for (const HfTensor& tensor : hf_tensors(m)) {
    const std::string name = has_prefix ? tensor.name : bare(tensor.name);
    used.insert(name);
    for (const ParamSpec& spec : tensor.parameters)
      sources_[spec.name] = {name, hf_place(m, spec.name), spec.global};
    const SafeTensor* found = weights_.find(name);
    if (!found)
      problems.push_back(fmt::format("{} {} is missing", name, to_string(tensor.shape)));
    else if (found->shape != extents(tensor.shape))
      problems.push_back(fmt::format("{} has the shape {}, config.json asks for {}", name,
                                     shape_text(found->shape), shape_text(extents(tensor.shape))));
    else if (!found->type())
      problems.push_back(
          fmt::format("{} has the type {}; F32, BF16 and F16 can be read", name, found->dtype));
  }
  for (const std::string& name : weights_.names())
    if (!used.count(name) && !is_hf_constant(name) && !(m.tie_word_embeddings && name == "lm_head.weight"))
      problems.push_back(fmt::format("{} is no weight of the model in config.json", name));
  if (problems.empty()) return;
  const size_t count = problems.size();
  if (count > 12) problems.resize(12), problems.push_back(fmt::format("... and {} more", count - 12));
  fail("{} does not hold the weights of its config.json:\n  - {}", path().string(),
       fmt::join(problems, "\n  - "));
}

void PretrainedFolder::read(const std::string& parameter, const Box& box, float* out) const {
  const auto found = sources_.find(parameter);
  check(found != sources_.end(), "{} holds no {}", path().string(), parameter);
  if (empty(box)) return;
  const Source& source = found->second;
  const int64_t columns = box.extent.rank() == 2 ? box.extent[1] : 1;
  if (source.place.transposed) {
    // Some columns of the file's rows at a time, which are rows here.
    const int64_t rows = std::max<int64_t>(1, block_elements / columns);
    for (int64_t first = 0; first < box.extent[0]; first += rows) {
      Box block = box;
      block.offset[0] += first;
      block.extent[0] = std::min(rows, box.extent[0] - first);
      read_transposed(source, block, out + first * columns);
    }
    return;
  }
  const int64_t width = source.global.rank() == 2 ? source.global[1] : 1;
  const int64_t row = source.place.part * source.global[0] + box.offset[0];
  const int64_t column = box.extent.rank() == 2 ? box.offset[1] : 0;
  if (columns == width) return weights_.read(source.tensor, row * width, box.numel(), out);
  for (int64_t r = 0; r < box.extent[0]; ++r)
    weights_.read(source.tensor, (row + r) * width + column, columns, out + r * columns);
}

// Rows of the box are columns of the file: a run of each of the file's rows, turned several at a time.
void PretrainedFolder::read_transposed(const Source& source, const Box& box, float* out) const {
  constexpr int64_t together = 16;  // a cache line of the result
  const int64_t rows = box.extent[0], columns = box.extent[1],
                out_width = source.global[0] * source.place.parts;
  const int64_t first = source.place.part * source.global[0] + box.offset[0];
  std::vector<float> runs(static_cast<size_t>(together * rows));
  for (int64_t c = 0; c < columns; c += together) {
    const int64_t count = std::min(together, columns - c);
    for (int64_t i = 0; i < count; ++i)
      weights_.read(source.tensor, (box.offset[1] + c + i) * out_width + first, rows, runs.data() + i * rows);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < count; ++i) out[r * columns + c + i] = runs[static_cast<size_t>(i * rows + r)];
  }
}

void PretrainedFolder::check_tied() const {
  const SafeTensor* head = weights_.find("lm_head.weight");
  if (!config_.model.tie_word_embeddings || !head) return;
  const Source& table = sources_.at("embed.tokens.weight");
  check(head->shape == extents(table.global) && head->type(),
        "{}: lm_head.weight has the shape {}, but config.json ties it to {}", path().string(),
        shape_text(head->shape), table.tensor);
  std::vector<float> a(static_cast<size_t>(std::min(block_elements, head->numel()))), b(a.size());
  for (int64_t at = 0; at < head->numel(); at += block_elements) {
    const int64_t count = std::min(block_elements, head->numel() - at);
    weights_.read("lm_head.weight", at, count, a.data());
    weights_.read(table.tensor, at, count, b.data());
    check(std::memcmp(a.data(), b.data(), static_cast<size_t>(count) * sizeof(float)) == 0,
          "{}: lm_head.weight is not {}, although config.json ties them; set tie_word_embeddings to false "
          "there, or remove one of them",
          path().string(), table.tensor);
  }
}

std::string model_differences(const ModelConfig& here, const ModelConfig& there) {
  ModelConfig other = there;
  other.from = here.from;
  other.hidden_dropout = here.hidden_dropout;
  other.initializer_range = here.initializer_range;
  const ConfigNode a = write_fields(here), b = write_fields(other);
  std::string text;
  const auto compare = [&](const auto& self, const ConfigNode& x, const ConfigNode& y,
                           const std::string& section) -> void {
    for (const auto& [key, value] : x.entries) {
      const ConfigNode& theirs = *y.find(key);
      if (value.kind == ConfigNode::Kind::map)
        self(self, value, theirs, section + key + ".");
      else if (value.text != theirs.text)
        text += fmt::format("{}model.{}{}: {} is {} there", text.empty() ? "" : "\n", section, key,
                            value.text, theirs.text);
    }
  };
  compare(compare, a, b, "");
  return text;
}

namespace {

template <class Read>
void read_agreed(Communicator& world, const std::filesystem::path& folder, const ModelConfig& model,
                 const Read& read) {
  collectively(world, [&] {
    const PretrainedFolder pretrained(folder);
    const std::string differences = model_differences(model, pretrained.model());
    if (!differences.empty()) fail_usage("{} holds another model:\n{}", folder.string(), differences);
    if (world.rank() == 0) pretrained.check_tied();
    read(pretrained);
  });
}

}  // namespace

void load_pretrained(Communicator& world, const std::filesystem::path& folder, const ModelConfig& model,
                     std::span<const StatePiece> pieces) {
  read_agreed(world, folder, model, [&](const PretrainedFolder& pretrained) {
    for (const StatePiece& piece : pieces)
      if (piece.kind == StateKind::weight) pretrained.read(piece.name, piece.box, piece.data);
  });
}

void load_pretrained(Communicator& world, const std::filesystem::path& folder, const ModelConfig& model,
                     ParamStore& params) {
  read_agreed(world, folder, model, [&](const PretrainedFolder& pretrained) {
    std::vector<float> part;
    for (const ParamStore::Entry& entry : params.entries()) {
      if (entry.primary >= 0 || empty(entry.box)) continue;
      const int64_t n = entry.box.numel();
      for (int64_t begin = 0; begin < n; begin += block_elements) {
        const int64_t end = std::min(begin + block_elements, n);
        for (const Box& box : boxes_of_range(entry.box, begin, end)) {
          part.resize(static_cast<size_t>(box.numel()));
          pretrained.read(entry.spec.name, box, part.data());
          params.set_weights(entry.offset + index_within(entry.box, box), box.numel(), part.data());
        }
      }
    }
  });
}

}  // namespace triax
