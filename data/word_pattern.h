#pragma once

#include <optional>
#include <string_view>

#include "data/unicode.h"

namespace triax {

/// How a byte-level BPE tokenizer cuts text into words, each of which is merged for itself. The regular
/// expressions of the models, matched by code written for them.
enum class WordPattern {
  none,    ///< the whole text is one word
  gpt2,    ///< ByteLevel's own: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  llama3,  ///< (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
           ///<  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  qwen2,   ///< LLaMA-3's with \p{N} for \p{N}{1,3}
};

/// The pattern that this regular expression is; nothing when it is none of them.
std::optional<WordPattern> word_pattern(std::string_view regex);

/// The bytes of the word that valid, non-empty UTF-8 begins with. Every character belongs to a word. Linear
/// in the length of the word and of the white space after it.
size_t first_word(WordPattern pattern, const CharacterClasses& classes, std::string_view text);

}  // namespace triax
