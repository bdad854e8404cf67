#include "engine/text_stream.h"

#include <algorithm>

namespace triax {

namespace {

constexpr size_t context = 8, window_limit = 64;  // tokens
constexpr int most_held = 3;                      // a character has at most 4 bytes, each at most a token

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<int32_t>& before)
    : tokenizer_(tokenizer),
      window_(before.end() - static_cast<int64_t>(std::min(before.size(), context)), before.end()),
      known_(tokenizer.decode(window_)) {}

std::string TextStream::beyond_known() {
  const std::string text = tokenizer_.decode(window_);
  const auto [differs, _] = std::mismatch(text.begin(), text.end(), known_.begin(), known_.end());
  std::string fresh(differs, text.end());
  known_ = text;
  return fresh;
}

std::string TextStream::push(int32_t token) {
  window_.push_back(token);
  // SentencePiece tells bytes that are no whole character yet as U+FFFD.
  if (held_ < most_held && tokenizer_.decode(window_).ends_with("\xEF\xBF\xBD")) {
    ++held_;
    return "";
  }
  held_ = 0;
  std::string text = characters_.push(beyond_known());
  if (window_.size() >= window_limit) {
    window_.erase(window_.begin(), window_.end() - static_cast<int64_t>(context));
    known_ = tokenizer_.decode(window_);
  }
  return text;
}

std::string TextStream::finish() {
  const std::string rest = characters_.push(beyond_known());
  return rest + characters_.finish();
}

}  // namespace triax
