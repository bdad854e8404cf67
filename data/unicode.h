#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triax {

/// What the patterns of tokenizers ask of a character.
enum CharacterClass : uint8_t {
  class_letter = 1,  ///< \p{L}
  class_number = 2,  ///< \p{N}
  class_space = 4,   ///< \s: White_Space
  class_word = 8,    ///< \w: letters, marks, decimal digits, connectors and what else is alphabetic
};

/// The classes of all characters by Unicode 16, a table of a megabyte made from utf8proc's data (Unicode 15.0
/// in Debian 12) and, for what that does not know, data/unicode_16.h. A character that is newer still has no
/// class.
class CharacterClasses {
 public:
  CharacterClasses();
  uint8_t operator[](uint32_t character) const { return table_[character]; }

 private:
  std::vector<uint8_t> table_;
};

/// A character of valid UTF-8 and the bytes that it takes.
struct Character {
  uint32_t code;
  uint32_t bytes;
};
/// The first character of valid, non-empty UTF-8.
inline Character first_character(const char* text) {
  const auto* b = reinterpret_cast<const unsigned char*>(text);
  if (b[0] < 0x80) return {b[0], 1};
  if (b[0] < 0xE0) return {(b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu), 2};
  if (b[0] < 0xF0) return {(b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu), 3};
  return {(b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu), 4};
}
/// The last character of valid, non-empty UTF-8.
Character last_character(std::string_view text);

/// The length of the longest prefix that is valid UTF-8 (no surrogates, nothing overlong, at most U+10FFFF).
size_t valid_utf8(std::string_view text);

/// `text` with each maximal part that is no UTF-8 replaced by U+FFFD (The Unicode Standard, 3.9, "best
/// practice"; what Python's errors="replace" does). `storage` holds the result unless `text` is valid
/// already.
std::string_view replace_invalid(std::string_view text, std::string& storage);

/// Appends a character as UTF-8.
void append_utf8(uint32_t character, std::string& text);

/// `text`, valid UTF-8, in normalization form C as the tokenizers package makes it, that is, by Unicode 9:
/// characters that combine since a later version stay where they are. In `storage` unless nothing can change.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace triax
