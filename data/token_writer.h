#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triax {

enum class TokenFormat {
  megatron,  ///< PREFIX.bin and PREFIX.idx (MMIDIDX, version 1), uint16 below a vocabulary of 65,500, else
             ///< int32
  llmc,  ///< PREFIX.bin: uint16 (20240520, version 1) up to a vocabulary of 65,536, else uint32 (20240801, 7)
};

/// How far a TokenWriter has come.
struct WrittenTokens {
  int64_t tokens = 0;
  int64_t documents = 0;      ///< ended ones
  int64_t open_document = 0;  ///< tokens of the one that has not ended
  bool operator==(const WrittenTokens&) const = default;
};

/// Writes a token file that open_tokens() and the format's own programs read, document by document, in
/// constant memory. Until finish() everything stands in PREFIX.bin.part and PREFIX.documents.part; finish()
/// puts the files in place by renaming whole ones. Layouts: megatron/core/datasets/indexed_dataset.py of
/// Megatron-LM, and dev/data/data_common.py of llm.c. Errors name the file and the system's reason.
class TokenWriter {
 public:
  /// Goes on at `from`, which sync() has returned before for the same prefix, format and vocabulary; what was
  /// written after it is cut off. From zero: begins anew. A usage error when another process writes there, or
  /// the parts are shorter than `from` says.
  TokenWriter(std::string prefix, TokenFormat format, int64_t vocabulary, const WrittenTokens& from);
  ~TokenWriter();  ///< leaves the parts where they are
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  void append(std::span<const int32_t> tokens);
  void end_document();  ///< nothing when it has no tokens
  /// Makes all that was written durable.
  WrittenTokens sync();
  /// Completes the parts, so that publish() only renames; nothing can be appended any more.
  void finish();

  const WrittenTokens& written() const { return written_; }
  /// Bytes of a token.
  int width() const { return width_; }

  /// Renames finished parts of `prefix`; a second time it does what the first one left undone.
  static void publish(const std::string& prefix, TokenFormat format);
  /// The first part that is neither there nor published, of a run that was stopped or, `finished`, of one
  /// that only had to publish; empty when none is missing.
  static std::string missing_part(const std::string& prefix, TokenFormat format, bool finished);
  /// Removes the parts.
  static void discard(const std::string& prefix);

 private:
  struct File {
    int fd = -1;
    std::string path;
    std::vector<char> buffer;
  };
  void open(File& file, const std::string& path, int64_t bytes);
  void put(File& file, const void* data, size_t bytes);
  void flush(File& file);
  void write_index();
  void write_header();

  std::string prefix_;
  TokenFormat format_;
  int64_t vocabulary_;
  int width_;
  WrittenTokens written_;
  File tokens_, documents_;  // documents: the length of each, int64
};

/// Replaces `path` atomically by a file with this content, on the disk when it returns.
void replace_text(const std::string& path, std::string_view content);

}  // namespace triax
