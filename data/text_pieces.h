#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/unicode.h"

namespace triax {

/// A part of an input that is encoded by itself.
struct TextPiece {
  std::string text;
  std::string input;
  bool lines = false;          ///< whole lines of JSON lines, each a document
  bool ends_document = false;  ///< of a text: the last piece of its file
  int64_t first_line = 0;      ///< number of the first line, for messages
};

/// Where a TextPieces stands.
struct TextPosition {
  int64_t input = 0, offset = 0, line = 1;
  bool operator==(const TextPosition&) const = default;
};

/// Cuts input files into pieces of about a megabyte, reading ahead no more than that. JSON lines are cut at
/// line ends; text only where encoding the parts gives the tokens of the whole (see below), or not at all.
class TextPieces {
 public:
  /// What a cut must keep.
  enum class Cut {
    anywhere,  ///< bytes
    at_lines,  ///< the patterns of byte-level BPE: words and white space around the cut
    never,     ///< text files come whole
  };
  /// Usage errors, naming the file: missing, unreadable, a folder, empty, of a format that holds no plain
  /// text.
  TextPieces(std::vector<std::string> inputs, Cut cut, const TextPosition& from);

  /// The next piece, none at the end. A usage error when a piece would be longer than 256 MiB.
  std::optional<TextPiece> next();
  const TextPosition& position() const { return position_; }
  /// Bytes of all inputs, and of those before the position.
  int64_t total_bytes() const { return total_; }
  int64_t bytes_before() const;

 private:
  size_t cut_place(const std::string& text, bool lines) const;
  std::vector<std::string> inputs_;
  std::vector<int64_t> sizes_;
  Cut cut_;
  TextPosition position_;
  int64_t total_ = 0;
  CharacterClasses classes_;
};

/// Whether `path` is JSON lines by its name.
bool is_json_lines(const std::string& path);

}  // namespace triax
