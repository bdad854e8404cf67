#include "data/json_lines.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "data/json_text.h"
#include "data/mapped_file.h"

namespace triax {
namespace {

constexpr int32_t end_of_document = 256;
constexpr int64_t stride = 1 << 16;

class JsonLines final : public TokenSource {
 public:
  JsonLines(const std::string& path, const std::string& key) : file_(path) {
    const auto bytes = file_.bytes();
    const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    int64_t line = 0;
    for (size_t at = 0; at < content.size();) {
      const size_t end = std::min(content.find('\n', at), content.size());
      ++line;
      add(content.substr(at, end - at), key, line);
      at = end + 1;
    }
    if (tokens_ == 0) fail_usage("{} has no text under '{}' in any line", path, key);
  }

  int64_t tokens() const override { return tokens_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    check(first >= 0 && static_cast<int64_t>(out.size()) <= tokens_ - first,
          "{} tokens from {} on were asked of {}, which has {}", out.size(), first, name(), tokens_);
    auto place = std::upper_bound(places_.begin(), places_.end(), first,
                                  [](int64_t token, const Place& p) { return token < p.token; }) -
                 1;
    std::string text;
    while (!out.empty()) {
      const int64_t end = place + 1 == places_.end() ? tokens_ : (place + 1)->token;
      text.clear();
      const bool ends = unescape(*place, end - place->token, text);
      for (; first < end && !out.empty(); ++first, out = out.subspan(1)) {
        const auto i = static_cast<size_t>(first - place->token);
        out[0] = ends && i == text.size() ? end_of_document : static_cast<unsigned char>(text[i]);
      }
      ++place;
    }
  }
  int64_t vocabulary() const override { return end_of_document + 1; }
  const std::string& name() const override { return file_.path(); }
  std::string fingerprint() const override { return "jsonl:" + content_fingerprint(file_.bytes()); }

 private:
  // Where the tokens from `token` on stand: the beginning of a document, or a place further in it.
  struct Place {
    int64_t token, byte;
  };

  void add(std::string_view line, const std::string& key, int64_t number) {
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    std::string_view raw;
    if (const std::string wrong = find_json_text(line, key, &raw); !wrong.empty())
      fail_usage("{}:{}: {}", file_.path(), number, wrong);
    if (raw.empty()) return;
    const auto* base = reinterpret_cast<const char*>(file_.bytes().data());
    int64_t place = tokens_;
    places_.push_back({tokens_, raw.data() - base});
    std::string some;
    while (!raw.empty()) {
      some.clear();
      unescape_next(raw, stride, some);
      tokens_ += static_cast<int64_t>(some.size());
      if (tokens_ - place < stride || raw.empty()) continue;
      places_.push_back({tokens_, raw.data() - base});
      place = tokens_;
    }
    ++tokens_;
  }

  // The bytes from a place on, at most `count`; whether the document ends before.
  bool unescape(const Place& place, int64_t count, std::string& out) const {
    const auto bytes = file_.bytes().subspan(static_cast<size_t>(place.byte));
    std::string_view raw(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (static_cast<int64_t>(out.size()) < count) {
      if (raw[0] == '"') return true;
      if (raw[0] == '\\') {
        unescape_next(raw, 1, out);
        continue;
      }
      const size_t plain = std::min(raw.find_first_of("\"\\"), static_cast<size_t>(count) - out.size());
      out += raw.substr(0, plain);
      raw.remove_prefix(plain);
    }
    return false;
  }

  MappedFile file_;
  std::vector<Place> places_;
  int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> open_json_lines(const std::string& path, const std::string& key) {
  return std::make_unique<JsonLines>(path, key);
}

}  // namespace triax
