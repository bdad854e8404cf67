#include "data/word_pattern.h"

#include "core/error.h"

namespace triax {
namespace {

// A place in the text; past the end there is a character of no class.
class Cursor {
 public:
  Cursor(const CharacterClasses& classes, std::string_view text, size_t at = 0)
      : classes_(classes), text_(text), at_(at) {
    look();
  }
  size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  uint32_t code() const { return here_.code; }
  bool is(int mask) const { return (class_ & mask) != 0; }
  bool is_line_end() const { return !at_end() && (here_.code == '\r' || here_.code == '\n'); }
  /// A character that is neither letter, nor number, nor white space.
  bool is_other() const { return !at_end() && !is(class_letter | class_number | class_space); }
  void next() {
    at_ += here_.bytes;
    look();
  }

 private:
  void look() {
    here_ = at_end() ? Character{0, 0} : first_character(text_.data() + at_);
    class_ = at_end() ? 0 : classes_[here_.code];
  }
  const CharacterClasses& classes_;
  std::string_view text_;
  size_t at_;
  Character here_{};
  uint8_t class_ = 0;
};

constexpr uint32_t long_s = 0x17F;  // folds to s, the only other character that folds to one of these letters

uint32_t folded(uint32_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
  return c == long_s ? 's' : c;
}

// 's 't 're 've 'm 'll 'd: the bytes of the one that `text` begins with, or 0.
size_t contraction(const CharacterClasses& classes, std::string_view text, bool any_case) {
  if (text[0] != '\'') return 0;
  Cursor c(classes, text, 1);
  const auto letter = [&] { return c.at_end() ? 0 : any_case ? folded(c.code()) : c.code(); };
  const uint32_t first = letter();
  if (first == 0) return 0;
  c.next();
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return c.at();
  const uint32_t second = letter();
  const bool two = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  if (!two) return 0;
  c.next();
  return c.at();
}

// \s+(?!\S)|\s+: white space, but not the last of it when something else follows, unless it is all there is.
size_t spaces(Cursor c) {
  size_t last = c.at();
  while (c.is(class_space)) {
    last = c.at();
    c.next();
  }
  return c.at_end() || last == 0 ? c.at() : last;
}

size_t first_word_gpt2(const CharacterClasses& classes, std::string_view text) {
  if (const size_t bytes = contraction(classes, text, false)) return bytes;
  const Cursor start(classes, text);
  Cursor c = start;
  if (c.code() == ' ') c.next();
  for (const int kind : {class_letter, class_number}) {
    if (!c.is(kind)) continue;
    while (c.is(kind)) c.next();
    return c.at();
  }
  if (c.is_other()) {
    while (c.is_other()) c.next();
    return c.at();
  }
  return spaces(start);
}

// \s*[\r\n]+: up to the last line end of the white space; 0 without one.
size_t lines(Cursor c) {
  size_t end = 0;
  while (c.is(class_space)) {
    const bool line_end = c.is_line_end();
    c.next();
    if (line_end) end = c.at();
  }
  return end;
}

size_t first_word_llama3(const CharacterClasses& classes, std::string_view text, int digits) {
  if (const size_t bytes = contraction(classes, text, true)) return bytes;
  const Cursor start(classes, text);
  Cursor c = start;
  if (!c.is(class_letter | class_number) && !c.is_line_end()) c.next();
  if (c.is(class_letter)) {
    while (c.is(class_letter)) c.next();
    return c.at();
  }
  Cursor d = start;
  if (d.is(class_number)) {
    for (int i = 0; i < digits && d.is(class_number); ++i) d.next();
    return d.at();
  }
  if (d.code() == ' ') d.next();
  if (d.is_other()) {
    while (d.is_other()) d.next();
    while (d.is_line_end()) d.next();
    return d.at();
  }
  if (const size_t bytes = lines(start)) return bytes;
  return spaces(start);
}

}  // namespace

std::optional<WordPattern> word_pattern(std::string_view regex) {
  // Those with plain groups are what tiktoken's files say; the same words.
  if (regex == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)" ||
      regex == R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")
    return WordPattern::gpt2;
  if (regex ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
    return WordPattern::llama3;
  if (regex ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")
    return WordPattern::qwen2;
  return std::nullopt;
}

size_t first_word(WordPattern pattern, const CharacterClasses& classes, std::string_view text) {
  switch (pattern) {
    case WordPattern::none:
      return text.size();
    case WordPattern::gpt2:
      return first_word_gpt2(classes, text);
    case WordPattern::llama3:
      return first_word_llama3(classes, text, 3);
    case WordPattern::qwen2:
      return first_word_llama3(classes, text, 1);
  }
  return text.size();
}

}  // namespace triax
