#pragma once

#include <string>

#include "core/fields.h"

namespace triax {

/// A section as YAML with every key and its sentence above it, the way a person would write a job file:
/// defaults that differ from the value and the words that a value can be are told too.
std::string commented_yaml(const FieldTableBase& table, const ConfigNode& values, const ConfigNode& defaults);
template <class S>
std::string commented_yaml(const S& section) {
  return commented_yaml(fields_of(static_cast<const S*>(nullptr)), write_fields(section), write_fields(S{}));
}

/// All keys of a file as Markdown: a heading and a table (key, default, what it can be, meaning) for each
/// section.
std::string keys_as_markdown(const FieldTableBase& table, const ConfigNode& defaults);
template <class S>
std::string keys_as_markdown() {
  return keys_as_markdown(fields_of(static_cast<const S*>(nullptr)), write_fields(S{}));
}

/// Text for a cell of a Markdown table: without what would end the cell or be taken for HTML.
std::string markdown_cell(const std::string& text);

/// Lines of at most `width` characters, each begun with `prefix`; a longer word has a line of its own.
std::string wrapped(const std::string& text, const std::string& prefix, size_t width);

}  // namespace triax
