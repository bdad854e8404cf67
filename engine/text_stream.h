#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "engine/utf8_stream.h"

namespace triax {

/// Tokens that come one by one, handed on as text as soon as it is whole characters. A tokenizer may look at
/// the tokens before one (SentencePiece leaves out the space that begins a text), so that text is what the
/// last few tokens give with the new one, beyond what they gave without it.
class TextStream {
 public:
  /// `before`: the tokens that the text goes on from. The tokenizer belongs to the caller.
  TextStream(const Tokenizer& tokenizer, const std::vector<int32_t>& before);
  std::string push(int32_t token);
  /// What was held back, when nothing more comes.
  std::string finish();

 private:
  std::string beyond_known();

  const Tokenizer& tokenizer_;
  std::vector<int32_t> window_;
  std::string known_;  // what the window has given
  int held_ = 0;       // tokens whose text is not whole
  Utf8Stream characters_;
};

}  // namespace triax
