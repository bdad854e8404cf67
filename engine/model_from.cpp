#include "engine/model_from.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "checkpoint/reader.h"
#include "engine/hf_config.h"
#include "engine/job.h"
#include "engine/pretrained.h"

namespace triax {

namespace {

namespace fs = std::filesystem;

std::string text_at(const ConfigNode& root, const char* section, const char* key) {
  const ConfigNode* node = *section ? root.find(section) : &root;
  if (node) node = node->find(key);
  return node && node->kind == ConfigNode::Kind::scalar ? node->text : "";
}

fs::path plain(const std::string& path) {
  return fs::absolute(fs::path(path) / "").lexically_normal().parent_path();
}

// The model of the newest checkpoint of the run that `root` describes, if it began with that folder.
std::optional<ModelConfig> own_model(const ConfigNode& root, const fs::path& folder) {
  std::string dir = text_at(root, "checkpoint", "dir"), output = text_at(root, "", "output_dir"),
              name = text_at(root, "", "name");
  if (output.empty()) output = "runs/" + (name.empty() ? RunConfig{}.name : name);
  if (dir.empty()) dir = output + "/checkpoints";
  std::error_code none;
  if (text_at(root, "checkpoint", "resume") == "never" || !fs::is_directory(dir, none)) return std::nullopt;
  const FoundCheckpoint own = find_checkpoint(dir);
  if (!own.info) return std::nullopt;
  const RunConfig before = config_from_yaml(own.info->config, own.info->folder.string());
  if (before.model.from.empty() || plain(before.model.from) != folder) return std::nullopt;
  return before.model;
}

// What the job decides, whatever the folder says.
bool jobs_own(const std::string& key) {
  return key == "from" || key == "hidden_dropout" || key == "initializer_range";
}

void fill(ConfigNode& section, const ConfigNode& from, bool top) {
  for (const auto& [key, value] : from.entries) {
    ConfigNode* given = section.find(key);
    const bool absent = !given || given->kind == ConfigNode::Kind::null;
    if (top && jobs_own(key) && !(absent && key == "initializer_range")) continue;
    if (value.kind == ConfigNode::Kind::map) {
      if (!given) section.put(key, ConfigNode::map());
      given = section.find(key);
      if (given->kind == ConfigNode::Kind::null) given->kind = ConfigNode::Kind::map;
      if (given->kind == ConfigNode::Kind::map) fill(*given, value, false);
    } else if (!given) {
      section.put(key, value);
    } else if (absent) {
      *given = value;
    }
  }
}

}  // namespace

bool fill_model_from(ConfigNode& root, FieldReport& report) {
  ConfigNode* section = root.find("model");
  const ConfigNode* from = section ? section->find("from") : nullptr;
  if (!from || from->kind != ConfigNode::Kind::scalar || from->text.empty()) return true;
  const fs::path folder = plain(from->text);
  ModelConfig model;
  try {
    std::error_code none;
    const auto own = fs::is_directory(folder, none) ? std::nullopt : own_model(root, folder);
    model = own ? *own : read_hf_config(folder).model;
  } catch (const Error& error) {
    report.add(from->origin, "model.from", error.what());
    return false;
  }
  // What the job gives, over what the folder says.
  ModelConfig given = model;
  FieldReport ignored;  // problems of single keys are told when the job is read
  fields_of(&given).read(*section, &given, "model", ignored);
  if (const std::string differences = model_differences(given, model); !differences.empty())
    report.add(
        from->origin, "model.from",
        fmt::format("{} holds another model than the job describes:\n    {}\n    leave these keys out, or "
                    "name another folder",
                    folder.string(), differences));
  fill(*section, write_fields(model), true);
  return true;
}

}  // namespace triax
