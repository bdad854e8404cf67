#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace triax {

/// A stream of tokens that any thread may read anywhere. Formats are implementations of this.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// Length of the stream.
  virtual int64_t tokens() const = 0;
  /// Writes the tokens [first, first + out.size()) to `out`; a fault when they are not all in the stream.
  virtual void read(int64_t first, std::span<int32_t> out) const = 0;
  /// The vocab_size that holds every token this source can have: 256 for bytes; 0 where only reading all of
  /// it would tell.
  virtual int64_t vocabulary() const = 0;
  /// What error messages call it: its path.
  virtual const std::string& name() const = 0;
  /// "<format>:<bytes>:<hash of the content>", equal for equal content wherever it lies; what a resumed job
  /// compares its data by. Reads the content (see fingerprint() below), so call it once.
  virtual std::string fingerprint() const = 0;
};

/// How text is read: see DataConfig.
struct TextOptions {
  std::string tokenizer = "bytes";  ///< text is read only as bytes; any other refuses it
  std::string json_key = "text";
};

/// What keeps `path` from being read as text by this tokenizer, with the line of `triax tokenize` that makes
/// tokens of it; empty when nothing does.
std::string text_refusal(const std::string& path, const TextOptions& text);

/// Opens tokens by what `path` is called: `.txt` is a stream of bytes, token = byte; `.jsonl` is
/// json_lines.h's; `.bin` or `.idx` with the other one beside it, or their common prefix, is a dataset of
/// Megatron-LM; another `.bin` is llm.c's (packed_tokens.h). Files are mapped, not read, and must not be
/// shortened while they are open. Usage errors, naming path and remedy: an extension that is not supported
/// (with those that are), a missing file, a directory, no permission, an empty file, a damaged one.
std::unique_ptr<TokenSource> open_tokens(const std::string& path, const TextOptions& text = {});

/// 64-bit hash of a block. Any change within one aligned 8-byte word changes it; others do with probability
/// 1 - 2^-64 or so. It runs at memory speed.
uint64_t hash_bytes(std::span<const uint8_t> bytes);

/// "<bytes>:<hash>" of a file's content. Up to 1 GiB every byte counts; of more, size and 16,384 blocks of
/// 64 KiB, evenly spread with the first and the last among them.
std::string content_fingerprint(std::span<const uint8_t> content);

}  // namespace triax
