#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "core/config_tree.h"

namespace triax {

namespace {

// Words that some YAML version reads as something else than text.
bool is_reserved(std::string word) {
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::array<std::string_view, 8> reserved{"true", "false", "null", "yes", "no", "on", "off", "y"};
  return std::find(reserved.begin(), reserved.end(), word) != reserved.end() || word == "n";
}

std::string yaml_text(const ConfigNode& node) {
  if (!node.quoted) return node.text;
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '/' || c == '.';
  };
  const std::string& t = node.text;
  if (!t.empty() && (std::isalpha(static_cast<unsigned char>(t[0])) || t[0] == '/') &&
      std::all_of(t.begin(), t.end(), plain) && !is_reserved(t))
    return t;
  // A JSON string is a double-quoted YAML scalar; bytes that are not UTF-8 become U+FFFD.
  return nlohmann::json(t).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_flat(const ConfigNode& node) {
  const auto leaf = [](const ConfigNode& n) {
    return n.kind == ConfigNode::Kind::null || n.kind == ConfigNode::Kind::scalar;
  };
  return leaf(node) ||
         (node.kind == ConfigNode::Kind::list && std::all_of(node.items.begin(), node.items.end(), leaf)) ||
         (node.kind == ConfigNode::Kind::map && node.entries.empty());
}

std::string flat_yaml(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return "null";
    case ConfigNode::Kind::scalar:
      return yaml_text(node);
    case ConfigNode::Kind::map:
      return "{}";
    case ConfigNode::Kind::list:
      break;
  }
  std::string text;
  for (const ConfigNode& item : node.items) text += (text.empty() ? "" : ", ") + flat_yaml(item);
  return "[" + text + "]";
}

void block_yaml(const ConfigNode& node, int indent, std::string& out) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  if (node.kind == ConfigNode::Kind::list) {
    for (const ConfigNode& item : node.items) {
      if (is_flat(item)) {
        out += pad + "- " + flat_yaml(item) + "\n";
        continue;
      }
      // "- " takes the place of the first two blanks of the item's first line.
      std::string block;
      block_yaml(item, indent + 2, block);
      block[static_cast<size_t>(indent)] = '-';
      out += block;
    }
    return;
  }
  for (const auto& [key, value] : node.entries) {
    const std::string name = yaml_text(ConfigNode::scalar(key, true));
    if (is_flat(value)) {
      out += pad + name + ": " + flat_yaml(value) + "\n";
    } else {
      out += pad + name + ":\n";
      block_yaml(value, indent + 2, out);
    }
  }
}

nlohmann::ordered_json json_of(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return nullptr;
    case ConfigNode::Kind::scalar:
      if (node.quoted) return node.text;
      return nlohmann::ordered_json::parse(node.text);  // true, false or a number in JSON's own spelling
    case ConfigNode::Kind::list: {
      auto list = nlohmann::ordered_json::array();
      for (const ConfigNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case ConfigNode::Kind::map:
      break;
  }
  auto map = nlohmann::ordered_json::object();
  for (const auto& [key, value] : node.entries) map[key] = json_of(value);
  return map;
}

}  // namespace

std::string to_yaml(const ConfigNode& node) {
  if (is_flat(node)) return flat_yaml(node) + "\n";
  std::string text;
  block_yaml(node, 0, text);
  return text;
}

std::string to_json(const ConfigNode& node, int indent) {
  return json_of(node).dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace triax
