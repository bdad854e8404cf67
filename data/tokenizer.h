#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triax {

/// Text to token ids and back. Thread-safe: any number of threads may use one object.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// The ids of a text, special tokens that are written out in it included; nothing is put before or after
  /// it. Bytes that are no UTF-8 are taken for U+FFFD (one for each maximal part, as Python's
  /// errors="replace"), except by bytes.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of a run of tokens. A character may be spread over tokens, so that the bytes of a part need
  /// not be whole UTF-8. Ids that the tokenizer does not have give nothing.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  /// One more than the largest id that encode() gives; a model's vocab_size must not be smaller.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document. For bytes 256, which only a model with vocab_size 257 or more has.
  virtual std::optional<int32_t> end_of_text() const = 0;
  /// The files that make the tokenizer, absolute, for copying beside an exported model; none for bytes.
  virtual const std::vector<std::string>& files() const = 0;
  /// Whether a text can be cut beside a line end, as data/text_pieces.h does, and its parts encoded for
  /// themselves.
  virtual bool cuts_at_lines() const { return true; }
  /// Equal for tokenizers that encode alike: a hash of what they were made from.
  virtual std::string fingerprint() const = 0;
};

/// Whether `spec` means bytes: token = byte.
bool is_bytes(std::string_view spec);

/// Opens what `data.tokenizer` and `--tokenizer` name: "bytes"; a SentencePiece model (FILE.model); a
/// tokenizer.json of Hugging Face (byte-level BPE), or a folder with one of these (its tokenizer.json, or
/// where that is of a kind that is not supported its tokenizer.model). Usage errors, naming path and reason:
/// none there, damaged, of a kind that is not supported (with what it uses).
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec);

}  // namespace triax
