#include "engine/utf8_stream.h"

#include <cstdint>

namespace triax {

namespace {

constexpr const char* replacement = "\xEF\xBF\xBD";

/// The bytes that begin at text[0]: how many of them fit together, and whether they are a whole character.
struct Scan {
  size_t bytes;
  bool whole, may_go_on;  // the bytes end where the text does, and more could follow
};

Scan scan(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0) return {1, false, false};
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true};
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1) {  // no overlong forms, no surrogates, nothing beyond U+10FFFF
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {i, false, false};
  }
  return {length, true, false};
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Scan next = scan(rest);
    if (next.may_go_on) break;
    out += next.whole ? rest.substr(0, next.bytes) : std::string_view(replacement);
    rest.remove_prefix(next.bytes);
  }
  held_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() {
  const bool left = !held_.empty();
  held_.clear();
  return left ? replacement : "";
}

}  // namespace triax
