#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/config_tree.h"

namespace triax {

/// What reading found: every problem at once, and which keys the job gave.
struct FieldReport {
  std::vector<std::string> problems;
  std::set<std::string> given;  ///< full keys with a value other than null: "model.hidden_size"
  std::set<std::string> bad;  ///< full keys that are missing or have a problem: checks that use them are moot
  std::vector<std::string> known;  ///< all full keys of the file, to look for the nearest one

  void add(const Origin& origin, const std::string& key, const std::string& problem);
  bool has(const std::string& key) const { return given.count(key) != 0; }
};

/// What a field's value may be, beyond its type.
struct FieldLimits {
  std::optional<double> min, max;
  bool min_open = false, max_open = false;  ///< the limit itself is not allowed
  std::vector<std::string> choices;         ///< of a text or an enumeration (in the order of its values)
  std::string zero_word;                    ///< a word that stands for 0: "auto"
  bool nullable = false;                    ///< null stands for "not given"; 0 and "" are written as null
};

/// How one type of value is read, written and described. `value` points to an object of that type.
class ValueType {
 public:
  virtual ~ValueType() = default;
  virtual void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
                    FieldReport& report) const = 0;
  virtual ConfigNode write(const void* value, const FieldLimits& limits) const = 0;
  /// What is expected, in words: "a whole number of at least 1".
  virtual std::string expected(const FieldLimits& limits) const = 0;
  /// JSON Schema of the value.
  virtual ConfigNode schema(const FieldLimits& limits) const = 0;
  /// For a section, the table of its fields; null otherwise.
  virtual const class FieldTableBase* table() const { return nullptr; }
};

/// One key of a section.
struct Field {
  std::string key;
  std::string doc;  ///< one sentence
  bool required = false;
  std::string unless;  ///< of a required one: the key of the section in whose presence it need not be given
  std::string default_words;  ///< of a default that depends on other keys: "num_attention_heads"
  FieldLimits limits;
  std::shared_ptr<const ValueType> type;
  std::function<void*(void* section)> member;

  // Written one behind the other in the tables.
  Field& must_be_given() { return required = true, *this; }
  Field& must_be_given_unless(std::string key) { return required = true, unless = std::move(key), *this; }
  Field& derived(std::string from) { return default_words = std::move(from), limits.nullable = true, *this; }
  Field& at_least(double x) { return limits.min = x, limits.min_open = false, *this; }
  Field& above(double x) { return limits.min = x, limits.min_open = true, *this; }
  Field& at_most(double x) { return limits.max = x, limits.max_open = false, *this; }
  Field& below(double x) { return limits.max = x, limits.max_open = true, *this; }
  Field& one_of(std::vector<std::string> words) { return limits.choices = std::move(words), *this; }
  Field& zero_is(std::string word) { return limits.zero_word = std::move(word), *this; }
};

/// The fields of a section, without its type.
class FieldTableBase {
 public:
  const std::vector<Field>& fields() const { return fields_; }
  /// Reads a mapping (null counts as an empty one) into `section`, whose members hold the defaults. `key` is
  /// the section's own full key, "" for the whole file. Values with problems keep the default.
  void read(const ConfigNode& node, void* section, const std::string& key, FieldReport& report) const;
  ConfigNode write(const void* section) const;
  ConfigNode schema() const;
  /// A key that others have and this section will not: using it is a problem that says why, not an unknown
  /// key.
  void refuse(std::string key, std::string why) { refused_.emplace_back(std::move(key), std::move(why)); }
  /// The section's own keys in one line, "a, b, c".
  std::string keys() const;
  /// All full keys below this section, "model.hidden_size".
  void list_keys(const std::string& prefix, std::vector<std::string>& keys) const;

 protected:
  explicit FieldTableBase(std::shared_ptr<const void> defaults) : defaults_(std::move(defaults)) {}
  std::vector<Field> fields_;
  std::vector<std::pair<std::string, std::string>> refused_;

 private:
  void unknown(const ConfigNode& value, const std::string& key, const std::string& section,
               FieldReport& report) const;
  std::shared_ptr<const void> defaults_;  // a section as constructed
};

std::shared_ptr<const ValueType> bool_type();
std::shared_ptr<const ValueType> int_type();
std::shared_ptr<const ValueType> int64_type();
std::shared_ptr<const ValueType> double_type();
std::shared_ptr<const ValueType> text_type();
/// An enumeration as the words of limits.choices; `bytes` is the size of its integer.
std::shared_ptr<const ValueType> enum_type(size_t bytes);
std::shared_ptr<const ValueType> section_type(const FieldTableBase* table);

/// A list with access to its items: of any length, or of exactly `fixed` items.
struct ListAccess {
  std::function<size_t(const void*)> size;
  std::function<void(void*, size_t)> resize;
  std::function<void*(void*, size_t)> item;
  size_t fixed = 0;
};
std::shared_ptr<const ValueType> list_type(std::shared_ptr<const ValueType> item, ListAccess access);

template <class T>
struct ListTraits : std::false_type {};
template <class T>
struct ListTraits<std::vector<T>> : std::true_type {
  using Item = T;
  static ListAccess access() {
    using V = std::vector<T>;
    return {[](const void* v) { return static_cast<const V*>(v)->size(); },
            [](void* v, size_t n) { static_cast<V*>(v)->resize(n); },
            [](void* v, size_t i) -> void* { return &(*static_cast<V*>(v))[i]; }, 0};
  }
};
template <class T, size_t N>
struct ListTraits<std::array<T, N>> : std::true_type {
  using Item = T;
  static ListAccess access() {
    using V = std::array<T, N>;
    return {[](const void*) { return N; }, [](void*, size_t) {},
            [](void* v, size_t i) -> void* { return &(*static_cast<V*>(v))[i]; }, N};
  }
};

/// The type of a member: a number, a text, an enumeration, a list of them, or a section (a struct with a
/// `fields_of(const S*)` beside it).
template <class T>
std::shared_ptr<const ValueType> value_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return bool_type();
  } else if constexpr (std::is_same_v<T, int>) {
    return int_type();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return int64_type();
  } else if constexpr (std::is_same_v<T, double>) {
    return double_type();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text_type();
  } else if constexpr (std::is_enum_v<T>) {
    return enum_type(sizeof(T));
  } else if constexpr (ListTraits<T>::value) {
    return list_type(value_type<typename ListTraits<T>::Item>(), ListTraits<T>::access());
  } else {
    return section_type(&fields_of(static_cast<const T*>(nullptr)));
  }
}

/// The fields of struct S, each a key, a pointer to member and a sentence; defaults are S's own initial
/// values.
///
///     FieldTable<DataSource> table;
///     table.add("path", &DataSource::path, "File of tokens.").must_be_given();
///     table.add("weight", &DataSource::weight, "Share in the blend.").above(0);
template <class S>
class FieldTable : public FieldTableBase {
 public:
  FieldTable() : FieldTableBase(std::make_shared<const S>()) {}
  template <class T>
  Field& add(std::string key, T S::*member, std::string doc) {
    Field field;
    field.key = std::move(key);
    field.doc = std::move(doc);
    field.type = value_type<T>();
    field.member = [member](void* section) -> void* { return &(static_cast<S*>(section)->*member); };
    fields_.push_back(std::move(field));
    return fields_.back();
  }
};

/// Reads a whole document into a struct.
template <class S>
void read_fields(const ConfigNode& node, S& section, FieldReport& report) {
  const FieldTableBase& table = fields_of(static_cast<const S*>(nullptr));
  table.list_keys("", report.known);
  table.read(node, &section, "", report);
}
/// The effective values, every key written: reading them back gives an equal struct.
template <class S>
ConfigNode write_fields(const S& section) {
  return fields_of(static_cast<const S*>(nullptr)).write(&section);
}
/// JSON Schema (draft 2020-12) of a file that holds S.
template <class S>
ConfigNode schema_of(const std::string& title) {
  ConfigNode schema = ConfigNode::map();
  schema.put("$schema", ConfigNode::scalar("https://json-schema.org/draft/2020-12/schema", true));
  schema.put("title", ConfigNode::scalar(title, true));
  const ConfigNode body = fields_of(static_cast<const S*>(nullptr)).schema();
  schema.entries.insert(schema.entries.end(), body.entries.begin(), body.entries.end());
  return schema;
}

/// The shortest digits that read back as the same double, spelled so that YAML 1.1, YAML 1.2 and JSON take
/// them for a float: 3.0e-05.
std::string shortest(double value);

}  // namespace triax
