#include "data/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/unicode.h"

namespace triax {
namespace {

// Thrown within this file alone.
struct Wrong {
  std::string what;
};

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// The grammar, by recursive descent; values are passed over, not kept.
class Grammar {
 public:
  explicit Grammar(std::string_view text) : text_(text) {}

  std::string_view find(std::string_view key) {
    std::string_view found;
    bool any = false;
    space();
    if (next() != '{') throw Wrong{"it is no JSON object"};
    ++at_;
    space();
    if (next() == '}') {
      ++at_;
    } else {
      do {
        space();
        const std::string_view name = string();
        space();
        expect(':');
        space();
        if (name == key || (name.find('\\') != name.npos && unescape_json(name) == key)) {
          if (next() != '"') throw Wrong{fmt::format("'{}' is no text", key)};
          found = string();
          any = true;
        } else {
          value(1);
        }
        space();
      } while (take(','));
      expect('}');
    }
    space();
    if (at_ != text_.size()) throw wrong("something follows the object");
    if (!any) throw Wrong{fmt::format("the object has no '{}'", key)};
    return found;
  }

 private:
  Wrong wrong(std::string_view what) const { return {fmt::format("{} at column {}", what, at_ + 1)}; }
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c))
      throw wrong(at_ == text_.size() ? "the line is cut off" : fmt::format("'{}' is missing", c));
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  std::string_view string() {
    expect('"');
    const size_t begin = at_;
    for (;; ++at_) {
      if (at_ >= text_.size()) throw wrong("the line is cut off");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') break;
      if (c < 0x20) throw wrong("a control character in a text");
      if (c == '\\') escape();
    }
    return text_.substr(begin, at_++ - begin);
  }
  void escape() {
    ++at_;
    if (next() == 'u') {
      for (int i = 0; i < 4; ++i) {
        ++at_;
        if (!is_hex(next())) throw wrong("a \\u without four hexadecimal digits");
      }
    } else if (next() == '\0' || std::string_view("\"\\/bfnrt").find(next()) == std::string_view::npos) {
      throw wrong(at_ >= text_.size() ? "the line is cut off" : "an unknown escape");
    }
  }
  void digits() {
    const size_t begin = at_;
    while (next() >= '0' && next() <= '9') ++at_;
    if (at_ == begin) throw wrong("a digit is missing");
  }
  void number() {
    take('-');
    if (!take('0')) digits();
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits();
    }
  }
  void word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) throw wrong("no JSON value");
    at_ += expected.size();
  }
  void list(char end, bool names, int depth) {
    ++at_;
    space();
    if (take(end)) return;
    do {
      space();
      if (names) {
        string();
        space();
        expect(':');
        space();
      }
      value(depth + 1);
      space();
    } while (take(','));
    expect(end);
  }
  void value(int depth) {
    if (depth > 500) throw wrong("more than 500 levels");
    switch (next()) {
      case '"':
        string();
        return;
      case '{':
        return list('}', true, depth);
      case '[':
        return list(']', false, depth);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      case '\0':
        throw wrong("the line is cut off");
      default:
        return number();
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

uint32_t hex(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits)
    value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  return value;
}

// \uXXXX, and a second one where the two are a surrogate pair.
void unescape_code(std::string_view& raw, std::string& out) {
  uint32_t code = hex(raw.substr(2, 4));
  raw.remove_prefix(6);
  if (code >= 0xD800 && code < 0xDC00 && raw.size() >= 6 && raw[0] == '\\' && raw[1] == 'u') {
    const uint32_t low = hex(raw.substr(2, 4));
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      raw.remove_prefix(6);
    }
  }
  append_utf8(code >= 0xD800 && code < 0xE000 ? 0xFFFD : code, out);
}

}  // namespace

std::string find_json_text(std::string_view line, std::string_view key, std::string_view* text) {
  try {
    *text = Grammar(line).find(key);
    return "";
  } catch (const Wrong& wrong) {
    return wrong.what;
  }
}

void unescape_next(std::string_view& raw, size_t limit, std::string& out) {
  if (raw[0] != '\\') {
    const size_t plain = std::min({raw.find('\\'), raw.size(), std::max<size_t>(limit, 1)});
    out += raw.substr(0, plain);
    raw.remove_prefix(plain);
    return;
  }
  if (raw[1] == 'u') return unescape_code(raw, out);
  constexpr std::string_view names = "bfnrt", meanings = "\b\f\n\r\t";
  const size_t name = names.find(raw[1]);
  out += name == names.npos ? raw[1] : meanings[name];
  raw.remove_prefix(2);
}

std::string unescape_json(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  while (!raw.empty()) unescape_next(raw, raw.size(), text);
  return text;
}

}  // namespace triax
