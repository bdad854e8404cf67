#pragma once

#include <string>
#include <string_view>

namespace triax {

/// Finds the text of one line of JSON lines: the value of `key` in the object that `line` is (of a key that
/// stands there twice, the last one). On success `*text` is what stands between the quotes, escapes and all,
/// and the result is empty; otherwise it says what is wrong. The whole line is checked against the grammar of
/// JSON (RFC 8259).
std::string find_json_text(std::string_view line, std::string_view key, std::string_view* text);

/// Appends what the next character or escape of a JSON string's inside stands for and drops it from `raw`,
/// which must not be empty. Half of a surrogate pair is U+FFFD. A run of plain characters is taken at once,
/// up to `limit` bytes.
void unescape_next(std::string_view& raw, size_t limit, std::string& out);

/// The whole inside of a JSON string.
std::string unescape_json(std::string_view raw);

}  // namespace triax
