#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "core/error.h"
#include "data/unicode_16.h"

namespace triax {
namespace {

constexpr uint32_t characters = 0x110000;

// White_Space of PropList.txt, which is closed: no version of Unicode since 6.3 has changed it.
bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// \w beyond the categories: Join_Control, and the alphabetic symbols (letters in circles and squares).
bool is_odd_word(uint32_t c) {
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

// Of a character that utf8proc does not know.
uint8_t newer_classes_of(uint32_t c) {
  const auto* found =
      std::lower_bound(std::begin(newer_characters), std::end(newer_characters), c,
                       [](const NewerCharacters& range, uint32_t code) { return range.last < code; });
  return found != std::end(newer_characters) && found->first <= c ? found->classes : 0;
}

uint8_t classes_of(uint32_t c) {
  uint8_t classes = is_space(c) ? class_space : 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      classes |= class_letter | class_word;
      break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      classes |= class_number | class_word;
      break;
    case UTF8PROC_CATEGORY_NO:
      classes |= class_number;
      break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
      classes |= class_word;
      break;
    case UTF8PROC_CATEGORY_CN:
      classes |= newer_classes_of(c);
      break;
    default:
      break;
  }
  return is_odd_word(c) ? classes | class_word : classes;
}

// The bytes of the character at `at`, or 0 where there is none; then `*broken` are the bytes of the maximal
// part.
size_t character_bytes(const unsigned char* at, size_t left, size_t* broken) {
  const unsigned char b = at[0];
  *broken = 1;
  if (b < 0x80) return 1;
  size_t bytes = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (b >= 0xC2 && b <= 0xDF) {
    bytes = 2;
  } else if (b >= 0xE0 && b <= 0xEF) {
    bytes = 3;
    if (b == 0xE0) low = 0xA0;
    if (b == 0xED) high = 0x9F;  // surrogates
  } else if (b >= 0xF0 && b <= 0xF4) {
    bytes = 4;
    if (b == 0xF0) low = 0x90;
    if (b == 0xF4) high = 0x8F;  // beyond U+10FFFF
  } else {
    return 0;
  }
  for (size_t i = 1; i < bytes; ++i) {
    if (i >= left || at[i] < low || at[i] > high) return 0;
    low = 0x80, high = 0xBF;
    *broken = i + 1;
  }
  return bytes;
}

// Characters that combine with others since a later version of Unicode than 9, whose tables the tokenizers
// package normalizes by: to it, and to the models that were trained with it, they are characters like others.
// tests/data/tokenizers_reference.py finds them. And U+11A7, which utf8proc 2.8 loses behind a Hangul
// syllable.
constexpr std::pair<uint32_t, uint32_t> newer_marks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x11A7, 0x11A7},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

bool is_newer_mark(uint32_t c) {
  if (c < newer_marks[0].first) return false;
  const auto* after = std::upper_bound(std::begin(newer_marks), std::end(newer_marks), c,
                                       [](uint32_t code, const auto& range) { return code < range.first; });
  return c <= std::prev(after)->second;
}

void append_nfc(std::string_view text, std::string& out) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
      &mapped, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
  check(size >= 0, "a text of {} bytes can't be normalized: {}", text.size(), utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

}  // namespace

CharacterClasses::CharacterClasses() : table_(characters) {
  for (uint32_t c = 0; c < characters; ++c) table_[c] = classes_of(c);
}

Character last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return first_character(text.data() + at);
}

size_t valid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0, broken = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    while (at + sizeof word <= text.size()) {  // ASCII, eight at once
      std::memcpy(&word, bytes + at, sizeof word);
      if (word & 0x8080808080808080) break;
      at += sizeof word;
    }
    if (at == text.size()) break;
    const size_t length = character_bytes(bytes + at, text.size() - at, &broken);
    if (length == 0) break;
    at += length;
  }
  return at;
}

std::string_view replace_invalid(std::string_view text, std::string& storage) {
  size_t valid = valid_utf8(text);
  if (valid == text.size()) return text;
  storage.clear();
  for (;;) {
    storage += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return storage;
    size_t broken = 0;
    character_bytes(reinterpret_cast<const unsigned char*>(text.data()), text.size(), &broken);
    storage += "\xEF\xBF\xBD";
    text.remove_prefix(broken);
    valid = valid_utf8(text);
  }
}

void append_utf8(uint32_t c, std::string& text) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  // Below U+0300 nothing composes, and nothing there is encoded with a first byte of 0xCC or more.
  bool may_change = false;
  for (const char c : text) may_change |= static_cast<unsigned char>(c) >= 0xCC;
  if (!may_change) return text;
  storage.clear();
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.data() + at);
    if (is_newer_mark(c.code)) {
      append_nfc(text.substr(begin, at - begin), storage);
      storage += text.substr(at, c.bytes);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  append_nfc(text.substr(begin), storage);
  return storage;
}

}  // namespace triax
