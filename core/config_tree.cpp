#include "core/config_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace triax {

std::string to_string(const Origin& origin) {
  return origin.line ? fmt::format("{}:{}", origin.source, origin.line) : origin.source;
}

ConfigNode ConfigNode::of(Kind kind) {
  ConfigNode node;
  node.kind = kind;
  return node;
}

ConfigNode ConfigNode::scalar(std::string text, bool quoted) {
  ConfigNode node = of(Kind::scalar);
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (const Entry& e : entries)
    if (e.key == key) return &e.value;
  return nullptr;
}
ConfigNode* ConfigNode::find(std::string_view key) {
  return const_cast<ConfigNode*>(std::as_const(*this).find(key));
}
void ConfigNode::put(std::string key, ConfigNode value) {
  entries.push_back({std::move(key), std::move(value)});
}

namespace {

// Copies yaml-cpp's nodes into ours. Anchors may make a small file an endless tree, so the copy is bounded.
class Copier {
 public:
  Copier(const std::string& source, std::vector<std::string>& problems)
      : source_(source), problems_(problems) {}

  ConfigNode copy(const YAML::Node& from, const std::string& path, int depth = 0) {
    ConfigNode node;
    node.origin = {source_, from.Mark().line + 1};
    if (++copied_ > max_nodes || depth > max_depth) {
      if (!overflow_)
        problems_.push_back(
            fmt::format("{}: too many or too deeply nested values (anchors?)", to_string(node.origin)));
      overflow_ = true;
      return node;
    }
    switch (from.Type()) {
      case YAML::NodeType::Scalar:
        node.kind = ConfigNode::Kind::scalar;
        node.text = from.Scalar();
        node.quoted = from.Tag() == "!";
        break;
      case YAML::NodeType::Sequence:
        node.kind = ConfigNode::Kind::list;
        for (const auto& item : from) node.items.push_back(copy(item, path, depth + 1));
        break;
      case YAML::NodeType::Map:
        node.kind = ConfigNode::Kind::map;
        for (const auto& entry : from) add(node, entry.first, entry.second, path, depth);
        break;
      default:
        break;
    }
    return node;
  }

 private:
  void add(ConfigNode& map, const YAML::Node& key, const YAML::Node& value, const std::string& path,
           int depth) {
    const Origin here{source_, key.Mark().line + 1};
    if (!key.IsScalar()) {
      problems_.push_back(fmt::format("{}: a key must be a plain word", to_string(here)));
      return;
    }
    const std::string& name = key.Scalar();
    const std::string full = path.empty() ? name : path + "." + name;
    if (const ConfigNode* first = map.find(name)) {
      problems_.push_back(fmt::format("{}: {} is given twice, first in line {}; keep one of them",
                                      to_string(here), full, first->origin.line));
      return;
    }
    ConfigNode copied = copy(value, full, depth + 1);
    copied.origin = here;  // of the key: a block value begins a line later
    map.put(name, std::move(copied));
  }

  static constexpr int max_nodes = 1000000, max_depth = 64;
  std::string source_;
  std::vector<std::string>& problems_;
  int copied_ = 0;
  bool overflow_ = false;
};

}  // namespace

ConfigNode parse_yaml(const std::string& text, const std::string& source,
                      std::vector<std::string>& problems) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(text);
  } catch (const YAML::Exception& e) {
    const std::string where =
        e.mark.is_null() ? source : fmt::format("{}:{}:{}", source, e.mark.line + 1, e.mark.column + 1);
    problems.push_back(fmt::format("{}: not valid YAML: {}", where, e.msg));
    return ConfigNode::map();
  }
  if (documents.size() > 1) {
    problems.push_back(fmt::format("{}: has {} YAML documents; a job file has one (remove the lines '---')",
                                   source, documents.size()));
    return ConfigNode::map();
  }
  if (documents.empty() || documents[0].IsNull()) {
    problems.push_back(
        fmt::format("{}: is empty; a job file is a mapping of sections (model:, training:, "
                    "data:, ...)",
                    source));
    return ConfigNode::map();
  }
  if (!documents[0].IsMap()) {
    problems.push_back(
        fmt::format("{}: is a {}; a job file is a mapping of sections (model:, training:, "
                    "data:, ...)",
                    source, documents[0].IsSequence() ? "list" : "single value"));
    return ConfigNode::map();
  }
  return Copier(source, problems).copy(documents[0], "");
}

ConfigNode read_yaml(const std::string& path, std::vector<std::string>& problems) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    problems.push_back(fmt::format("{}: is a folder, not a job file", path));
    return ConfigNode::map();
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    const bool exists = std::filesystem::exists(path, error);
    // An empty file makes the copy above fail as well.
    if (exists && std::filesystem::file_size(path, error) == 0) return parse_yaml("", path, problems);
    problems.push_back(fmt::format("{}: {}", path, exists ? "cannot be read" : "no such file"));
    return ConfigNode::map();
  }
  return parse_yaml(text.str(), path, problems);
}

void merge(ConfigNode& base, const ConfigNode& over) {
  if (base.kind != ConfigNode::Kind::map || over.kind != ConfigNode::Kind::map) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.entries) {
    if (ConfigNode* mine = base.find(key))
      merge(*mine, value);
    else
      base.put(key, value);
  }
}

namespace {

// The place that `path` names, made where it is missing; null (and a problem) where it cannot be.
ConfigNode* place_of(ConfigNode& root, const std::string& path, const std::string& assignment,
                     std::vector<std::string>& problems) {
  ConfigNode* at = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    begin = end + 1;
    if (at->kind == ConfigNode::Kind::list) {
      const bool number = !key.empty() && key.size() < 7 &&
                          std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (!number || std::stoul(key) >= at->items.size()) {
        problems.push_back(fmt::format("--set {}: '{}' is not one of the list's items 0 .. {}", assignment,
                                       key, static_cast<int>(at->items.size()) - 1));
        return nullptr;
      }
      at = &at->items[std::stoul(key)];
      continue;
    }
    if (key.empty()) {
      problems.push_back(fmt::format("--set {}: an empty key; write --set section.key=value", assignment));
      return nullptr;
    }
    if (at->kind != ConfigNode::Kind::map) *at = ConfigNode::map();
    at->origin = at->origin.source.empty() ? Origin{"--set " + assignment, 0} : at->origin;
    ConfigNode* next = at->find(key);
    if (!next) {
      at->put(key, ConfigNode{});
      next = &at->entries.back().value;
    }
    at = next;
  }
  return at;
}

}  // namespace

void set_value(ConfigNode& root, const std::string& assignment, std::vector<std::string>& problems) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.push_back(fmt::format("--set {}: write --set section.key=value", assignment));
    return;
  }
  const std::string source = "--set " + assignment;
  std::vector<std::string> mine;
  ConfigNode value;
  try {
    value =
        Copier(source, mine).copy(YAML::Load(assignment.substr(equals + 1)), assignment.substr(0, equals));
  } catch (const YAML::Exception& e) {
    mine.push_back(fmt::format("{}: not valid YAML: {}", source, e.msg));
  }
  if (mine.empty()) {
    if (ConfigNode* at = place_of(root, assignment.substr(0, equals), assignment, mine)) {
      *at = std::move(value);
      at->origin = {source, 0};
    }
  }
  problems.insert(problems.end(), mine.begin(), mine.end());
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

bool is_near(std::string_view given, int edits) {
  const int size = static_cast<int>(given.size());
  return edits < size && edits <= std::max(2, size / 3);
}

}  // namespace triax
