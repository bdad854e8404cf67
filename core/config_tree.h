#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triax {

/// Where a value of a job file was written, for messages.
struct Origin {
  std::string source;  ///< file name, or "--set"
  int line = 0;        ///< from 1; 0: none
};
/// "job.yaml:12", "--set", or "" when unknown.
std::string to_string(const Origin& origin);

/// A YAML document as a plain tree that remembers where everything stood: what job files are merged in, read
/// from and written through. Scalars keep their text, so that numbers pass through unchanged.
struct ConfigNode {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;               ///< scalar
  bool quoted = false;            ///< scalar: a string by its quotes, whatever it looks like
  std::vector<ConfigNode> items;  ///< list
  std::vector<Entry> entries;     ///< map, in the order written, keys unique
  Origin origin;

  static ConfigNode scalar(std::string text, bool quoted);
  static ConfigNode list();
  static ConfigNode map();
  static ConfigNode of(Kind kind);

  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
  /// Adds an entry behind the others; the key must be new.
  void put(std::string key, ConfigNode value);
};
struct ConfigNode::Entry {
  std::string key;
  ConfigNode value;
};
inline ConfigNode ConfigNode::list() {
  return of(Kind::list);
}
inline ConfigNode ConfigNode::map() {
  return of(Kind::map);
}

/// Parses one YAML document whose top is a mapping. Problems (missing or empty file, broken YAML with line
/// and column, a key given twice, a top that is not a mapping) are added to `problems`, and what could be
/// read is returned.
ConfigNode parse_yaml(const std::string& text, const std::string& source, std::vector<std::string>& problems);
ConfigNode read_yaml(const std::string& path, std::vector<std::string>& problems);

/// Overlays `over` on `base`: mappings merge key by key, everything else is replaced.
void merge(ConfigNode& base, const ConfigNode& over);

/// Applies `key.sub=value`; the value is YAML, list items are addressed by number (`data.train.0.path=x`).
void set_value(ConfigNode& root, const std::string& assignment, std::vector<std::string>& problems);

/// YAML in block style (lists of scalars in one line). Strings that any YAML reader could take for something
/// else are quoted.
std::string to_yaml(const ConfigNode& node);
std::string to_json(const ConfigNode& node, int indent = 2);

/// What a value is, for "expected ..., got ...": its text, "nothing", "a list".
std::string describe(const ConfigNode& node);

/// Number of edits (insert, delete, replace, swap of neighbours) from one word to the other.
int edit_distance(std::string_view a, std::string_view b);
/// Whether a word that is so many edits from `given` may well be the one that was meant: at most two, or a
/// third of a long word, and never all of it.
bool is_near(std::string_view given, int edits);

}  // namespace triax
