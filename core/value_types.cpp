#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/fields.h"

namespace triax {

std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".n") != std::string::npos) return text;  // n: inf and nan are left alone
  const size_t e = text.find('e');
  return e == std::string::npos ? text + ".0" : text.substr(0, e) + ".0" + text.substr(e);
}

std::string describe(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return "nothing";
    case ConfigNode::Kind::scalar:
      return node.quoted ? fmt::format("the text \"{}\"", node.text) : node.text;
    case ConfigNode::Kind::list:
      return "a list";
    case ConfigNode::Kind::map:
      return "a mapping";
  }
  return "?";
}

namespace {

using Kind = ConfigNode::Kind;

ConfigNode word(const std::string& text) {
  return ConfigNode::scalar(text, true);
}
ConfigNode number(const std::string& text) {
  return ConfigNode::scalar(text, false);
}
bool is_plain(const ConfigNode& node) {
  return node.kind == Kind::scalar && !node.quoted;
}
bool is_zero_word(const ConfigNode& node, const FieldLimits& limits) {
  return node.kind == Kind::scalar && !limits.zero_word.empty() && node.text == limits.zero_word;
}

void wrong_type(const ConfigNode& node, const std::string& key, const std::string& expected,
                FieldReport& report) {
  report.add(node.origin, key, fmt::format("expected {}, got {}", expected, describe(node)));
}

std::string limit_words(const FieldLimits& limits, const std::function<std::string(double)>& text) {
  std::string words;
  if (limits.min)
    words += fmt::format(" {} {}", limits.min_open ? "above" : "of at least", text(*limits.min));
  if (limits.max)
    words += fmt::format("{} {} {}", words.empty() ? "" : " and", limits.max_open ? "below" : "at most",
                         text(*limits.max));
  return words;
}

bool within(double x, const FieldLimits& limits) {
  if (limits.min && (limits.min_open ? x <= *limits.min : x < *limits.min)) return false;
  return !(limits.max && (limits.max_open ? x >= *limits.max : x > *limits.max));
}

void put_limits(ConfigNode& schema, const FieldLimits& limits,
                const std::function<std::string(double)>& text) {
  if (limits.min) schema.put(limits.min_open ? "exclusiveMinimum" : "minimum", number(text(*limits.min)));
  if (limits.max) schema.put(limits.max_open ? "exclusiveMaximum" : "maximum", number(text(*limits.max)));
}

// {"type": name}, or with null or the word for zero as alternatives.
ConfigNode with_alternatives(ConfigNode schema, const FieldLimits& limits) {
  if (!limits.nullable && limits.zero_word.empty()) return schema;
  ConfigNode any = ConfigNode::list();
  any.items.push_back(std::move(schema));
  ConfigNode other = ConfigNode::map();
  if (limits.nullable) {
    other.put("type", word("null"));
  } else {
    other.put("const", word(limits.zero_word));
  }
  any.items.push_back(std::move(other));
  ConfigNode outer = ConfigNode::map();
  outer.put("anyOf", std::move(any));
  return outer;
}

ConfigNode typed(const std::string& type) {
  ConfigNode schema = ConfigNode::map();
  schema.put("type", word(type));
  return schema;
}

class BoolType final : public ValueType {
 public:
  void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
            FieldReport& report) const override {
    const std::string& t = node.text;
    if (is_plain(node) && (t == "true" || t == "True" || t == "TRUE"))
      *static_cast<bool*>(value) = true;
    else if (is_plain(node) && (t == "false" || t == "False" || t == "FALSE"))
      *static_cast<bool*>(value) = false;
    else
      wrong_type(node, key, expected(limits), report);
  }
  ConfigNode write(const void* value, const FieldLimits&) const override {
    return number(*static_cast<const bool*>(value) ? "true" : "false");
  }
  std::string expected(const FieldLimits&) const override { return "true or false"; }
  ConfigNode schema(const FieldLimits& limits) const override {
    return with_alternatives(typed("boolean"), limits);
  }
};

template <class T>
class IntType final : public ValueType {
 public:
  void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
            FieldReport& report) const override {
    if (is_zero_word(node, limits)) {
      *static_cast<T*>(value) = 0;
      return;
    }
    T x{};
    const char* end = node.text.data() + node.text.size();
    const auto [stop, error] = std::from_chars(node.text.data(), end, x);
    if (!is_plain(node) || stop != end || error == std::errc::invalid_argument || node.text.empty()) {
      wrong_type(node, key, expected(limits), report);
    } else if (error == std::errc::result_out_of_range || !within(static_cast<double>(x), limits)) {
      report.add(node.origin, key,
                 fmt::format("{} is out of range; expected {}", node.text, expected(limits)));
    } else {
      *static_cast<T*>(value) = x;
    }
  }
  ConfigNode write(const void* value, const FieldLimits& limits) const override {
    const T x = *static_cast<const T*>(value);
    if (x == 0 && !limits.zero_word.empty()) return word(limits.zero_word);
    if (x == 0 && limits.nullable) return ConfigNode{};
    return number(std::to_string(x));
  }
  std::string expected(const FieldLimits& limits) const override {
    return (limits.zero_word.empty() ? "" : limits.zero_word + " or ") + "a whole number" +
           limit_words(limits, text);
  }
  ConfigNode schema(const FieldLimits& limits) const override {
    ConfigNode schema = typed("integer");
    put_limits(schema, limits, text);
    return with_alternatives(std::move(schema), limits);
  }

 private:
  static std::string text(double x) { return std::to_string(static_cast<int64_t>(x)); }
};

class DoubleType final : public ValueType {
 public:
  void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
            FieldReport& report) const override {
    double x = 0;
    const char* end = node.text.data() + node.text.size();
    const auto [stop, error] = std::from_chars(node.text.data(), end, x);
    const bool parsed = is_plain(node) && stop == end && error != std::errc::invalid_argument &&
                        !node.text.empty() && node.text.find_first_of("nN") == std::string::npos;
    if (!parsed)
      wrong_type(node, key, expected(limits), report);
    else if (error == std::errc::result_out_of_range || !within(x, limits))
      report.add(node.origin, key,
                 fmt::format("{} is out of range; expected {}", node.text, expected(limits)));
    else
      *static_cast<double*>(value) = x;
  }
  ConfigNode write(const void* value, const FieldLimits&) const override {
    return number(shortest(*static_cast<const double*>(value)));
  }
  std::string expected(const FieldLimits& limits) const override {
    return "a number" + limit_words(limits, words);
  }
  ConfigNode schema(const FieldLimits& limits) const override {
    ConfigNode schema = typed("number");
    put_limits(schema, limits, words);
    return with_alternatives(std::move(schema), limits);
  }

 private:
  static std::string words(double x) { return fmt::format("{}", x); }
};

std::string choice_words(const std::vector<std::string>& choices) {
  return choices.size() == 1 ? choices[0] : fmt::format("one of {}", fmt::join(choices, ", "));
}

// Index of the choice that the node names; -1 and a problem where it is none.
int choose(const ConfigNode& node, const FieldLimits& limits, const std::string& key, FieldReport& report) {
  const auto& choices = limits.choices;
  const auto found = std::find(choices.begin(), choices.end(), node.text);
  if (node.kind == Kind::scalar && found != choices.end()) return static_cast<int>(found - choices.begin());
  if (node.kind != Kind::scalar) {
    wrong_type(node, key, choice_words(choices), report);
  } else {
    const auto nearest = std::min_element(choices.begin(), choices.end(), [&](const auto& a, const auto& b) {
      return edit_distance(node.text, a) < edit_distance(node.text, b);
    });
    const bool near = is_near(node.text, edit_distance(node.text, *nearest)) && choices.size() > 1;
    report.add(node.origin, key,
               fmt::format("expected {}, got {}{}", choice_words(choices), node.text,
                           near ? fmt::format("; did you mean {}?", *nearest) : ""));
  }
  return -1;
}

ConfigNode choice_schema(const FieldLimits& limits) {
  ConfigNode schema = ConfigNode::map(), words = ConfigNode::list();
  for (const std::string& c : limits.choices) words.items.push_back(word(c));
  schema.put("enum", std::move(words));
  return schema;
}

class TextType final : public ValueType {
 public:
  void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
            FieldReport& report) const override {
    if (!limits.choices.empty()) {
      if (choose(node, limits, key, report) >= 0) *static_cast<std::string*>(value) = node.text;
    } else if (node.kind != Kind::scalar || node.text.empty()) {
      wrong_type(node, key, expected(limits), report);
    } else {
      *static_cast<std::string*>(value) = node.text;
    }
  }
  ConfigNode write(const void* value, const FieldLimits& limits) const override {
    const auto& text = *static_cast<const std::string*>(value);
    return text.empty() && limits.nullable ? ConfigNode{} : word(text);
  }
  std::string expected(const FieldLimits& limits) const override {
    return limits.choices.empty() ? "a text" : choice_words(limits.choices);
  }
  ConfigNode schema(const FieldLimits& limits) const override {
    return with_alternatives(limits.choices.empty() ? typed("string") : choice_schema(limits), limits);
  }
};

class EnumType final : public ValueType {
 public:
  explicit EnumType(size_t bytes) : bytes_(bytes) {}
  void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
            FieldReport& report) const override {
    const int index = choose(node, limits, key, report);
    if (index >= 0) std::memcpy(value, &index, bytes_);
  }
  ConfigNode write(const void* value, const FieldLimits& limits) const override {
    int index = 0;
    std::memcpy(&index, value, bytes_);
    return word(limits.choices.at(static_cast<size_t>(index)));
  }
  std::string expected(const FieldLimits& limits) const override { return choice_words(limits.choices); }
  ConfigNode schema(const FieldLimits& limits) const override { return choice_schema(limits); }

 private:
  size_t bytes_;
};

class ListType final : public ValueType {
 public:
  ListType(std::shared_ptr<const ValueType> item, ListAccess access)
      : item_(std::move(item)), access_(std::move(access)) {}

  void read(const ConfigNode& node, void* value, const FieldLimits& limits, const std::string& key,
            FieldReport& report) const override {
    if (node.kind != Kind::list || (access_.fixed && node.items.size() != access_.fixed)) {
      const bool length = node.kind == Kind::list;
      report.add(node.origin, key,
                 fmt::format("expected {}, got {}", expected(limits),
                             length ? fmt::format("{} of them", node.items.size()) : describe(node)));
      return;
    }
    access_.resize(value, node.items.size());
    const size_t before = report.problems.size();
    for (size_t i = 0; i < node.items.size(); ++i)
      item_->read(node.items[i], access_.item(value, i), limits, fmt::format("{}[{}]", key, i), report);
    if (report.problems.size() != before) report.bad.insert(key);
  }
  ConfigNode write(const void* value, const FieldLimits& limits) const override {
    ConfigNode list = ConfigNode::list();
    for (size_t i = 0; i < access_.size(value); ++i)
      list.items.push_back(item_->write(access_.item(const_cast<void*>(value), i), limits));
    return list;
  }
  std::string expected(const FieldLimits& limits) const override {
    return fmt::format("a list of {}{}",
                       access_.fixed ? fmt::format("{}: each ", access_.fixed) : "items, each ",
                       item_->expected(limits));
  }
  ConfigNode schema(const FieldLimits& limits) const override {
    ConfigNode schema = typed("array");
    FieldLimits of_item = limits;
    of_item.nullable = false;
    schema.put("items", item_->schema(of_item));
    if (access_.fixed) {
      schema.put("minItems", number(std::to_string(access_.fixed)));
      schema.put("maxItems", number(std::to_string(access_.fixed)));
    }
    return limits.nullable ? with_alternatives(std::move(schema), limits) : schema;
  }

 private:
  std::shared_ptr<const ValueType> item_;
  ListAccess access_;
};

class SectionType final : public ValueType {
 public:
  explicit SectionType(const FieldTableBase* table) : table_(table) {}
  void read(const ConfigNode& node, void* value, const FieldLimits&, const std::string& key,
            FieldReport& report) const override {
    table_->read(node, value, key, report);
  }
  ConfigNode write(const void* value, const FieldLimits&) const override { return table_->write(value); }
  std::string expected(const FieldLimits&) const override {
    return "a mapping with the keys " + table_->keys();
  }
  ConfigNode schema(const FieldLimits&) const override { return table_->schema(); }
  const FieldTableBase* table() const override { return table_; }

 private:
  const FieldTableBase* table_;
};

}  // namespace

std::shared_ptr<const ValueType> bool_type() {
  return std::make_shared<BoolType>();
}
std::shared_ptr<const ValueType> int_type() {
  return std::make_shared<IntType<int>>();
}
std::shared_ptr<const ValueType> int64_type() {
  return std::make_shared<IntType<int64_t>>();
}
std::shared_ptr<const ValueType> double_type() {
  return std::make_shared<DoubleType>();
}
std::shared_ptr<const ValueType> text_type() {
  return std::make_shared<TextType>();
}
std::shared_ptr<const ValueType> enum_type(size_t bytes) {
  return std::make_shared<EnumType>(bytes);
}
std::shared_ptr<const ValueType> list_type(std::shared_ptr<const ValueType> item, ListAccess access) {
  return std::make_shared<ListType>(std::move(item), std::move(access));
}
std::shared_ptr<const ValueType> section_type(const FieldTableBase* table) {
  return std::make_shared<SectionType>(table);
}

}  // namespace triax
