#include "core/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace triax {

void FieldReport::add(const Origin& origin, const std::string& key, const std::string& problem) {
  const std::string where = to_string(origin);
  problems.push_back(where.empty() ? fmt::format("{}: {}", key, problem)
                                   : fmt::format("{}: {}: {}", where, key, problem));
  bad.insert(key);
}

namespace {

std::string join(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

std::string leaf(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

}  // namespace

std::string FieldTableBase::keys() const {
  std::string words;
  for (const Field& f : fields_) words += (words.empty() ? "" : ", ") + f.key;
  return words;
}

void FieldTableBase::unknown(const ConfigNode& value, const std::string& key, const std::string& section,
                             FieldReport& report) const {
  for (const auto& [refused, why] : refused_)
    if (refused == key) return report.add(value.origin, join(section, key), why);
  // Nearest by edits; a key of another section counts as one edit further away.
  std::string nearest;
  int best = std::numeric_limits<int>::max();
  const auto consider = [&](const std::string& candidate, int extra) {
    // A word of a longer key is near to it: layers, num_hidden_layers.
    const std::string name = leaf(candidate), words = "_" + name + "_";
    int distance = edit_distance(key, name);
    if (words.find("_" + key + "_") != std::string::npos) distance = std::min(distance, 2);
    distance += extra;
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  };
  for (const Field& f : fields_) consider(join(section, f.key), 0);
  for (const std::string& k : report.known) consider(k, 1);
  report.add(value.origin, join(section, key),
             is_near(key, best) ? fmt::format("unknown key; the nearest known key is {}", nearest)
                                : fmt::format("unknown key; {} has the keys {}",
                                              section.empty() ? "the file" : section, keys()));
}

void FieldTableBase::read(const ConfigNode& node, void* section, const std::string& key,
                          FieldReport& report) const {
  if (node.kind != ConfigNode::Kind::map && node.kind != ConfigNode::Kind::null) {
    report.add(node.origin, key,
               fmt::format("expected a mapping with the keys {}, got {}", keys(), describe(node)));
    for (const Field& f : fields_) report.bad.insert(join(key, f.key));
    return;
  }
  for (const auto& [name, value] : node.entries) {
    const bool known =
        std::any_of(fields_.begin(), fields_.end(), [&](const Field& f) { return f.key == name; });
    if (!known) unknown(value, name, key, report);
  }
  for (const Field& f : fields_) {
    const std::string full = join(key, f.key);
    const ConfigNode* value = node.find(f.key);
    const bool is_section = f.type->table() != nullptr;
    if (!value && is_section) {
      ConfigNode empty;
      empty.origin = node.origin;
      f.type->read(empty, f.member(section), f.limits, full, report);
    } else if (!value || (value->kind == ConfigNode::Kind::null && f.limits.nullable)) {
      const ConfigNode* instead = f.unless.empty() ? nullptr : node.find(f.unless);
      if (f.required && (!instead || instead->kind == ConfigNode::Kind::null)) {
        report.problems.push_back(
            fmt::format("{}: missing; expected {} ({})", full, f.type->expected(f.limits), f.doc));
        report.bad.insert(full);
      } else if (f.required) {
        report.bad.insert(full);  // whoever reads the other key fills it in
      }
    } else {
      report.given.insert(full);
      f.type->read(*value, f.member(section), f.limits, full, report);
    }
  }
}

ConfigNode FieldTableBase::write(const void* section) const {
  ConfigNode map = ConfigNode::map();
  // member() is one function for reading and writing; writing only looks.
  for (const Field& f : fields_)
    map.put(f.key, f.type->write(f.member(const_cast<void*>(section)), f.limits));
  return map;
}

ConfigNode FieldTableBase::schema() const {
  ConfigNode properties = ConfigNode::map(), required = ConfigNode::list();
  std::map<std::string, ConfigNode> unless;  // by the key that makes them optional
  for (const Field& f : fields_) {
    ConfigNode property = ConfigNode::map();
    std::string doc = f.doc;
    if (!f.default_words.empty()) doc += fmt::format(" Default: {}.", f.default_words);
    property.put("description", ConfigNode::scalar(doc, true));
    const ConfigNode type = f.type->schema(f.limits);
    property.entries.insert(property.entries.end(), type.entries.begin(), type.entries.end());
    if (f.required && !f.unless.empty())
      unless.try_emplace(f.unless, ConfigNode::list())
          .first->second.items.push_back(ConfigNode::scalar(f.key, true));
    else if (f.required)
      required.items.push_back(ConfigNode::scalar(f.key, true));
    else if (!f.type->table() && f.default_words.empty())
      property.put("default", f.type->write(f.member(const_cast<void*>(defaults_.get())), f.limits));
    properties.put(f.key, std::move(property));
  }
  ConfigNode schema = ConfigNode::map();
  schema.put("type", ConfigNode::scalar("object", true));
  schema.put("additionalProperties", ConfigNode::scalar("false", false));
  if (!required.items.empty()) schema.put("required", std::move(required));
  for (auto& [key, keys] : unless) {  // only one such key is in use; a second would need an allOf
    ConfigNode given = ConfigNode::map(), all = ConfigNode::map(), either = ConfigNode::list(),
               only = ConfigNode::list();
    only.items.push_back(ConfigNode::scalar(key, true));
    given.put("required", std::move(only));
    ConfigNode null = ConfigNode::map(), not_null = ConfigNode::map(), which = ConfigNode::map();
    null.put("type", ConfigNode::scalar("null", true));
    not_null.put("not", std::move(null));
    which.put(key, std::move(not_null));
    given.put("properties", std::move(which));
    all.put("required", std::move(keys));
    either.items = {std::move(all), std::move(given)};
    schema.put("anyOf", std::move(either));
  }
  schema.put("properties", std::move(properties));
  return schema;
}

void FieldTableBase::list_keys(const std::string& prefix, std::vector<std::string>& keys) const {
  for (const Field& f : fields_) {
    const std::string full = join(prefix, f.key);
    keys.push_back(full);
    if (f.type->table()) f.type->table()->list_keys(full, keys);
  }
}

}  // namespace triax
