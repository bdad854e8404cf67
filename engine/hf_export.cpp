#include "engine/hf_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/file_io.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_folder.h"
#include "checkpoint/tensor_reader.h"
#include "checkpoint/text.h"
#include "engine/hf_config.h"
#include "engine/hf_names.h"
#include "engine/hf_tokenizer.h"
#include "engine/job.h"
#include "engine/new_folder.h"

namespace triax {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::vector<int64_t> extents(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

void write_text(const fs::path& path, const std::string& text) {
  FileWriter file(path);
  file.append(text.data(), text.size());
  file.finish();
}

/// The weights of one checkpoint on their way into files.
class Weights {
 public:
  Weights(const CheckpointInfo& checkpoint, const ModelConfig& model, const HfExportOptions& options)
      : reader_(checkpoint), options_(options), tensors_(hf_tensors(model)) {}

  void write(const fs::path& folder, HfExport& out) {
    const std::vector<std::vector<const HfTensor*>> shards = cut();
    json map = json::object();
    int64_t parameters = 0;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shards.size() == 1
                                   ? std::string(safetensors_file)
                                   : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      const int64_t elements = write_file(folder / name, shards[i]);
      parameters += elements;
      out.files.push_back(name);
      for (const HfTensor* tensor : shards[i]) map[tensor->name] = name;
      if (options_.progress)
        options_.progress(
            fmt::format("wrote {} ({})", name, readable_bytes(elements * size_of(options_.type))));
    }
    out.tensors = static_cast<int64_t>(tensors_.size());
    out.bytes = parameters * size_of(options_.type);
    if (shards.size() == 1) return;
    const ordered_json index{{"metadata", {{"total_parameters", parameters}, {"total_size", out.bytes}}},
                             {"weight_map", map}};
    write_text(folder / safetensors_index, index.dump(2) + "\n");
    out.files.emplace_back(safetensors_index);
  }

 private:
  std::vector<std::vector<const HfTensor*>> cut() const {
    std::vector<std::vector<const HfTensor*>> shards(1);
    int64_t bytes = 0;
    for (const HfTensor& tensor : tensors_) {
      const int64_t size = tensor.shape.numel() * size_of(options_.type);
      if (bytes + size > options_.max_shard_bytes && !shards.back().empty()) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back(&tensor);
      bytes += size;
    }
    return shards;
  }

  int64_t write_file(const fs::path& path, const std::vector<const HfTensor*>& tensors) {
    std::vector<SafeTensorsWriter::Item> items;
    int64_t elements = 0;
    for (const HfTensor* tensor : tensors) {
      items.push_back({tensor->name, extents(tensor->shape)});
      elements += tensor->shape.numel();
    }
    SafeTensorsWriter file(path, std::move(items), options_.type, {{"format", "pt"}});
    for (const HfTensor* tensor : tensors) append(*tensor, file);
    file.finish();
    return elements;
  }

  void append(const HfTensor& tensor, SafeTensorsWriter& file) {
    if (tensor.transposed) turned_.resize(static_cast<size_t>(tensor.shape.numel()));
    int64_t first = 0;  // row of the parameter among those side by side
    for (const ParamSpec& spec : tensor.parameters) {
      const TensorRecord* record = reader_.find(logical_path(StateKind::weight, spec.name));
      check(record && record->shape == spec.global, "{} holds no {} {}", reader_.info().folder.string(),
            spec.name, to_string(spec.global));
      reader_.each(*record, [&](int64_t begin, int64_t end, const float* data) {
        if (!tensor.transposed) return file.append(data, end - begin);
        const int64_t in = tensor.shape[0], out = tensor.shape[1];
        int64_t r = begin / in, c = begin % in;
        for (int64_t i = 0; i < end - begin; ++i) {
          turned_[static_cast<size_t>(c * out + first + r)] = data[i];
          if (++c == in) c = 0, ++r;
        }
      });
      first += spec.global[0];
    }
    if (tensor.transposed) file.append(turned_.data(), tensor.shape.numel());
  }

  TensorReader reader_;
  const HfExportOptions& options_;
  std::vector<HfTensor> tensors_;
  std::vector<float> turned_;  // a Conv1D's matrix
};

const char* torch_name(StoredType type) {
  return type == StoredType::f32 ? "float32" : type == StoredType::bf16 ? "bfloat16" : "float16";
}

}  // namespace

HfExport export_hf(const CheckpointInfo& checkpoint, const fs::path& folder, const HfExportOptions& options) {
  const RunConfig job = config_from_yaml(checkpoint.config, (checkpoint.folder / manifest_file).string());
  NewFolder target(folder, "config.json", options.force);
  HfExport out;
  const HfTokenizer tokenizer = hf_tokenizer(job);
  ordered_json config = to_hf_config(job.model, torch_name(options.type));
  out.architecture = config["architectures"][0].get<std::string>();
  for (const char* key : {"bos_token_id", "eos_token_id"})
    config[key] = tokenizer.end_of_text ? json(*tokenizer.end_of_text) : json();
  const ordered_json generation{{"_from_model_config", true},
                                {"bos_token_id", config["bos_token_id"]},
                                {"eos_token_id", config["eos_token_id"]}};
  write_text(target.path() / "config.json", config.dump(2) + "\n");
  write_text(target.path() / "generation_config.json", generation.dump(2) + "\n");
  out.files = {"config.json", "generation_config.json"};
  for (const auto& [name, text] : tokenizer.files) {
    write_text(target.path() / name, text);
    out.files.push_back(name);
  }
  out.notes.insert(out.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  if (job.model.hidden_dropout > 0 && job.model.architecture == Architecture::llama)
    out.notes.push_back(fmt::format("model.hidden_dropout: {} is not in config.json, {} has no key for it",
                                    job.model.hidden_dropout, out.architecture));
  Weights(checkpoint, job.model, options).write(target.path(), out);
  target.commit();
  return out;
}

int64_t parse_size(const std::string& text) {
  static const std::map<std::string, int64_t> units = {
      {"", 1},          {"B", 1},         {"KB", 1000},    {"MB", 1'000'000}, {"GB", 1'000'000'000},
      {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  const size_t digits = text.find_first_not_of("0123456789");
  const std::string number = text.substr(0, digits),
                    unit = digits == std::string::npos ? "" : text.substr(digits);
  const auto found = units.find(unit);
  if (number.empty() || number.size() > 9 + (unit.empty() ? 6U : 0U) || found == units.end() ||
      std::stoll(number) == 0)
    fail_usage("{} is no size of a file; it can be 5GB, 500MB, 2GiB or a number of bytes", text);
  return std::stoll(number) * found->second;
}

}  // namespace triax
