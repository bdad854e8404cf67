#include "data/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "data/mapped_file.h"
#include "data/token_file.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) {
    const MappedFile file(path);
    const std::string_view model(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (const auto status = processor_.LoadFromSerializedProto(model); !status.ok())
      fail_usage("{} is no SentencePiece model, or a damaged one: {}", path, status.ToString());
    files_.push_back(fs::absolute(path).string());
    fingerprint_ = "sentencepiece:" + content_fingerprint(file.bytes());
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    check(status.ok(), "SentencePiece can't encode a text of {} bytes: {}", text.size(), status.ToString());
    return ids;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::vector<int> ids;
    for (const int32_t t : tokens)
      if (t >= 0 && t < processor_.GetPieceSize()) ids.push_back(t);
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    check(status.ok(), "SentencePiece can't decode {} tokens: {}", tokens.size(), status.ToString());
    return text;
  }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> end_of_text() const override {
    if (processor_.eos_id() < 0) return std::nullopt;
    return processor_.eos_id();
  }
  const std::vector<std::string>& files() const override { return files_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> files_;
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece_tokenizer(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

void train_sentencepiece(const SentencePieceTraining& t) {
  std::string inputs;
  for (const std::string& input : t.inputs) {
    const MappedFile readable(input);  // its errors say more than the library's
    if (input.find(',') != std::string::npos)
      fail_usage("{}: SentencePiece takes a comma for the end of a file's name; rename it", input);
    inputs += (inputs.empty() ? "" : ",") + input;
  }
  const std::string temporary = fmt::format("{}.tmp-{}", t.output, getpid());
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{{"input", inputs},
                                                   {"model_prefix", temporary},
                                                   {"vocab_size", std::to_string(t.vocab_size)},
                                                   {"model_type", t.algorithm},
                                                   {"input_sentence_size", std::to_string(t.sentences)},
                                                   {"shuffle_input_sentence", "true"},
                                                   {"num_threads", std::to_string(t.threads)},
                                                   {"character_coverage", "0.9995"},
                                                   {"byte_fallback", "true"},
                                                   {"split_digits", "true"},
                                                   {"normalization_rule_name", "identity"},
                                                   {"remove_extra_whitespaces", "false"},
                                                   {"allow_whitespace_only_pieces", "true"},
                                                   {"train_extremely_large_corpus", "true"},
                                                   {"minloglevel", "2"}});
  std::error_code error;
  fs::remove(temporary + ".vocab", error);
  if (!status.ok()) {
    fs::remove(temporary + ".model", error);
    fail_usage("SentencePiece can't train {}: {}; a smaller --vocab-size needs less text", t.output,
               status.ToString());
  }
  fs::rename(temporary + ".model", t.output, error);
  if (error) fail("can't rename {}.model to {}: {}", temporary, t.output, error.message());
}

}  // namespace triax
