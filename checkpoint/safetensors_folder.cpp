#include "checkpoint/safetensors_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace triax {

namespace fs = std::filesystem;
using nlohmann::json;

SafeTensorsFolder::SafeTensorsFolder(const fs::path& folder) : path_(folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) fail_usage("{}: no such folder", folder.string());
  if (fs::exists(folder / safetensors_file, none)) {
    files_.push_back(std::make_unique<SafeTensorsFile>(folder / safetensors_file));
    add(*files_.back());
  } else if (fs::exists(folder / safetensors_index, none)) {
    open_index();
  } else {
    fail_usage(
        "{} holds no weights: neither {} nor {} is in it (a folder with pytorch_model.bin is rewritten by "
        "transformers: from_pretrained, then save_pretrained)",
        folder.string(), safetensors_file, safetensors_index);
  }
}

void SafeTensorsFolder::open_index() {
  const fs::path index = path_ / safetensors_index;
  std::map<std::string, std::string> wanted;
  try {
    wanted = json::parse(read_file(index)).at("weight_map").get<decltype(wanted)>();
  } catch (const json::exception& e) {
    fail("{} is damaged: {}", index.string(), e.what());
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : wanted) {
    check(!file.empty() && fs::path(file).filename() == file && file != "..",
          "{} is damaged: it has {} in \"{}\", which is no file beside it", index.string(), tensor, file);
    names.insert(file);
  }
  for (const std::string& name : names) {
    std::error_code none;
    check(fs::exists(path_ / name, none), "{} lists {}, which is missing", index.string(), name);
    files_.push_back(std::make_unique<SafeTensorsFile>(path_ / name));
    add(*files_.back());
  }
  for (const auto& [tensor, file] : wanted) {
    const auto found = places_.find(tensor);
    check(found != places_.end() && found->second.file->path().filename() == file,
          "{} has {} in {}, but that file does not hold it", index.string(), tensor, file);
  }
  for (const auto& [tensor, place] : places_)
    check(wanted.count(tensor) != 0, "{} does not list {}, which is in {}", index.string(), tensor,
          place.file->path().string());
}

void SafeTensorsFolder::add(const SafeTensorsFile& file) {
  for (const SafeTensor& tensor : file.tensors()) {
    const auto [at, added] = places_.insert({tensor.name, {&file, &tensor}});
    check(added, "{} is both in {} and in {}", tensor.name, at->second.file->path().string(),
          file.path().string());
  }
}

std::vector<std::string> SafeTensorsFolder::names() const {
  std::vector<std::string> out;
  out.reserve(places_.size());
  for (const auto& [name, place] : places_) out.push_back(name);
  return out;
}

const SafeTensor* SafeTensorsFolder::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.tensor;
}

void SafeTensorsFolder::read(const std::string& name, int64_t first, int64_t count, float* out) const {
  const auto found = places_.find(name);
  check(found != places_.end(), "{} holds no {}", path_.string(), name);
  found->second.file->read(*found->second.tensor, first, count, out);
}

}  // namespace triax
