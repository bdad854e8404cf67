#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/unicode.h"

namespace triax {

/// A token that is looked for in the text before anything else, such as <|endoftext|>.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< and that behind it
  bool normalized = false;   ///< looked for in the normalized text
  bool special = false;
};

/// Finds added tokens in text: the leftmost, and of those that begin there the longest, as Hugging Face's
/// tokenizers does.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);
  /// Hands the parts of `text` (valid UTF-8) over in order, none of them empty: text between tokens (id -1),
  /// or a token.
  void split(std::string_view text, const CharacterClasses& classes,
             const std::function<void(std::string_view part, int32_t id)>& take) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const AddedToken* longest_at(std::string_view rest) const;
  std::vector<AddedToken> tokens_;  // longest first
  std::bitset<256> first_bytes_;
};

}  // namespace triax
