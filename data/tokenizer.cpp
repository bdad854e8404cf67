#include "data/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/huggingface_tokenizer.h"
#include "data/sentencepiece_tokenizer.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens)
      if (token >= 0 && token < 256) text += static_cast<char>(token);
    return text;
  }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> end_of_text() const override { return 256; }
  const std::vector<std::string>& files() const override { return files_; }
  std::string fingerprint() const override { return "bytes"; }

 private:
  std::vector<std::string> files_;
};

// A folder may hold one tokenizer in two forms, as LLaMA-2's: SentencePiece's own, and converted to a
// tokenizer.json of a kind that is not read. Without a form that is read the first one's error stands. One
// that is cut off is an error for itself.
std::unique_ptr<Tokenizer> open_in_folder(const fs::path& folder) {
  std::optional<Error> first;
  std::error_code error;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
    const fs::path file = folder / name;
    if (!fs::exists(file, error)) continue;
    try {
      return open_tokenizer(file.string());
    } catch (const Error& e) {
      if (!first) first = e;
      std::ifstream in(file, std::ios::binary);
      if (file.extension() == ".json" && !nlohmann::json::accept(in)) break;
    }
  }
  if (first) throw *first;
  fail_usage("the folder {} has neither a tokenizer.json nor a tokenizer.model", folder.string());
}

}  // namespace

bool is_bytes(std::string_view spec) {
  return spec == "bytes";
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) {
  if (is_bytes(spec)) return std::make_unique<ByteTokenizer>();
  fs::path path(spec);
  std::error_code error;
  if (fs::is_directory(path, error)) return open_in_folder(path);
  if (!fs::exists(path, error))
    fail_usage(
        "there is no tokenizer {}; it can be bytes, a SentencePiece FILE.model, or a tokenizer.json or its "
        "folder",
        spec);
  if (path.extension() == ".model") return open_sentencepiece_tokenizer(spec);
  if (path.extension() == ".json") return open_huggingface_tokenizer(spec);
  fail_usage(
      "the tokenizer {} has the extension '{}'; it can be .model (SentencePiece) or .json (Hugging Face)",
      spec, path.extension().string());
}

}  // namespace triax
