#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "data/json_lines.h"
#include "data/mapped_file.h"
#include "data/packed_tokens.h"
#include "data/tokenizer.h"

namespace triax {
namespace {

// Text as bytes.
class ByteTokens final : public TokenSource {
 public:
  explicit ByteTokens(const std::string& path) : file_(path) {}

  int64_t tokens() const override { return static_cast<int64_t>(file_.bytes().size()); }
  void read(int64_t first, std::span<int32_t> out) const override {
    const int64_t count = static_cast<int64_t>(out.size());
    check(first >= 0 && count <= tokens() && first <= tokens() - count,
          "{} tokens from {} on were asked of {}, which has {}", count, first, name(), tokens());
    std::copy_n(file_.bytes().data() + first, count, out.data());
  }
  int64_t vocabulary() const override { return 256; }
  const std::string& name() const override { return file_.path(); }
  std::string fingerprint() const override { return "bytes:" + content_fingerprint(file_.bytes()); }

 private:
  MappedFile file_;
};

uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// For a fixed state this is a bijection of the word, and the other way round: a changed word stays visible.
uint64_t mix(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * 0x9E3779B97F4A7C15, 29);
}

}  // namespace

std::string text_refusal(const std::string& path, const TextOptions& text) {
  const std::filesystem::path file(path);
  if (is_bytes(text.tokenizer) || (file.extension() != ".txt" && file.extension() != ".jsonl")) return "";
  const std::string prefix = (file.parent_path() / file.stem()).string();
  const std::string key =
      file.extension() == ".jsonl" && text.json_key != "text" ? " --json-key " + text.json_key : "";
  return fmt::format(
      "{} is text, and the tokenizer {} works on it beforehand: run `triax tokenize {} --tokenizer {}{} "
      "--output {}` and "
      "name {} instead",
      path, text.tokenizer, path, text.tokenizer, key, prefix, prefix);
}

std::unique_ptr<TokenSource> open_tokens(const std::string& path, const TextOptions& text) {
  if (is_megatron_path(path)) return open_megatron_tokens(path);
  if (const std::string refusal = text_refusal(path, text); !refusal.empty()) fail_usage("{}", refusal);
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".txt") return std::make_unique<ByteTokens>(path);
  if (extension == ".jsonl") return open_json_lines(path, text.json_key);
  if (extension == ".bin") return open_llmc_tokens(path);
  if (std::filesystem::is_directory(path)) fail_usage("{} is a directory; a data source is one file", path);
  fail_usage(
      "the data file {} has the extension '{}'; supported are .txt, .jsonl, .bin (text read as bytes; a text "
      "in each "
      "line's JSON object; tokens of llm.c, or of Megatron-LM with the .idx beside the .bin)",
      path, extension);
}

uint64_t hash_bytes(std::span<const uint8_t> bytes) {
  // Eight independent lanes keep the multiplier busy.
  constexpr size_t lanes = 8, word = sizeof(uint64_t), row = lanes * word;
  std::array<uint64_t, lanes> state;
  for (size_t lane = 0; lane < lanes; ++lane) state[lane] = lane + 1;
  size_t at = 0;
  for (; at + row <= bytes.size(); at += row)
    for (size_t lane = 0; lane < lanes; ++lane)
      state[lane] = mix(state[lane], load_word(bytes.data() + at + lane * word));
  std::array<uint8_t, row> tail{};
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), tail.begin());
  uint64_t hash = mix(0, bytes.size());  // tells a tail of zeros from none
  for (size_t lane = 0; lane < lanes; ++lane)
    hash = mix(hash, mix(state[lane], load_word(tail.data() + lane * word)));
  hash ^= hash >> 32;
  return hash * 0xD6E8FEB86659FD93;
}

std::string content_fingerprint(std::span<const uint8_t> content) {
  constexpr size_t whole = size_t{1} << 30, block = size_t{1} << 16, blocks = 16384;
  uint64_t hash = 0;
  if (content.size() <= whole) {
    hash = hash_bytes(content);
  } else {
    const size_t last = content.size() - block;
    for (size_t i = 0; i < blocks; ++i) {
      const auto offset = static_cast<size_t>(static_cast<unsigned __int128>(last) * i / (blocks - 1));
      hash = mix(hash, hash_bytes(content.subspan(offset, block)));
    }
  }
  return fmt::format("{}:{:016x}", content.size(), hash);
}

}  // namespace triax
