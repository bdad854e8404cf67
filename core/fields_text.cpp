#include "core/fields_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

namespace triax {

namespace {

constexpr size_t line_width = 100;

// A value in one line, without the line's end.
std::string in_one_line(const ConfigNode& value) {
  std::string text = to_yaml(value);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string indented(const std::string& text, int indent) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += fmt::format("{:{}}{}\n", "", indent, line);
  return out;
}

bool is_block(const ConfigNode& value) {
  return to_yaml(value).find('\n') + 1 != to_yaml(value).size() ||
         (value.kind == ConfigNode::Kind::map && !value.entries.empty()) ||
         (value.kind == ConfigNode::Kind::list && !value.items.empty() &&
          value.items[0].kind == ConfigNode::Kind::map);
}

// Of a list of sections, the schemas of an item's keys; null otherwise.
const ConfigNode* item_keys(const ConfigNode& schema) {
  const ConfigNode* any = schema.find("anyOf");
  const ConfigNode* items = (any ? any->items.at(0) : schema).find("items");
  return items ? items->find("properties") : nullptr;
}

std::string comment_of(const Field& f, const ConfigNode& value, const ConfigNode& usual) {
  std::string text = f.doc;
  const ConfigNode schema = f.type->schema(f.limits);
  if (const ConfigNode* keys = item_keys(schema))
    for (const auto& [key, about] : keys->entries)
      text += fmt::format(" {}: {}", key, about.find("description")->text);
  if (f.limits.choices.size() > 1) text += fmt::format(" One of {}.", fmt::join(f.limits.choices, ", "));
  if (!f.default_words.empty())
    text += fmt::format(" Default: {}.", f.default_words);
  else if (!f.required && to_yaml(usual) != to_yaml(value))
    text += fmt::format(" Default: {}.", in_one_line(usual));
  return text;
}

void write_commented(const FieldTableBase& table, const ConfigNode& values, const ConfigNode& defaults,
                     int indent, std::string& out) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  for (const Field& f : table.fields()) {
    const ConfigNode &value = *values.find(f.key), &usual = *defaults.find(f.key);
    if (f.type->table()) {
      out += fmt::format("\n{}{}{}:\n", wrapped(f.doc, pad + "# ", line_width), pad, f.key);
      write_commented(*f.type->table(), value, usual, indent + 2, out);
      continue;
    }
    out += wrapped(comment_of(f, value, usual), pad + "# ", line_width);
    if (is_block(value))
      out += fmt::format("{}{}:\n{}", pad, f.key, indented(to_yaml(value), indent + 2));
    else
      out += fmt::format("{}{}: {}\n", pad, f.key, in_one_line(value));
  }
}

std::string default_text(const Field& f, const ConfigNode& usual) {
  if (f.required) return "required";
  if (!f.default_words.empty()) return markdown_cell(f.default_words);
  return fmt::format("`{}`", in_one_line(usual));
}

void add_rows(const FieldTableBase& table, const ConfigNode& defaults, const std::string& prefix,
              std::string& out) {
  for (const Field& f : table.fields()) {
    if (f.type->table()) continue;
    const ConfigNode schema = f.type->schema(f.limits);
    const ConfigNode* items = item_keys(schema);
    out += fmt::format("| `{}{}` | {} | {} | {} |\n", prefix, f.key, default_text(f, *defaults.find(f.key)),
                       items ? "a list of mappings" : markdown_cell(f.type->expected(f.limits)),
                       markdown_cell(f.doc));
    if (!items) continue;
    for (const auto& [key, about] : items->entries) {
      const ConfigNode *usual = about.find("default"), *type = about.find("type");
      out += fmt::format("| `{}{}[].{}` | {} | {} | {} |\n", prefix, f.key, key,
                         usual ? fmt::format("`{}`", in_one_line(*usual)) : "required",
                         type ? "a " + type->text : "", markdown_cell(about.find("description")->text));
    }
  }
}

void add_sections(const FieldTableBase& table, const ConfigNode& defaults, const std::string& prefix,
                  const std::string& title, const std::string& doc, std::string& out) {
  std::string rows;
  add_rows(table, defaults, prefix, rows);
  if (!rows.empty())
    out += fmt::format("### {}\n\n{}\n\n| key | default | can be | meaning |\n|---|---|---|---|\n{}\n", title,
                       markdown_cell(doc), rows);
  for (const Field& f : table.fields())
    if (f.type->table())
      add_sections(*f.type->table(), *defaults.find(f.key), prefix + f.key + ".",
                   fmt::format("`{}{}`", prefix, f.key), f.doc, out);
}

}  // namespace

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out.append("&lt;");
      continue;
    }
    if (c == '|') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string wrapped(const std::string& text, const std::string& prefix, size_t width) {
  std::istringstream words(text);
  std::string out, line = prefix;
  for (std::string word; words >> word;) {
    if (line.size() > prefix.size() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line = prefix;
    }
    if (line.size() > prefix.size()) line += ' ';
    line += word;
  }
  return out + line + "\n";
}

std::string commented_yaml(const FieldTableBase& table, const ConfigNode& values,
                           const ConfigNode& defaults) {
  std::string out;
  write_commented(table, values, defaults, 0, out);
  return out;
}

std::string keys_as_markdown(const FieldTableBase& table, const ConfigNode& defaults) {
  std::string out;
  add_sections(table, defaults, "", "The file itself", "At the top of the file.", out);
  return out;
}

}  // namespace triax
