#pragma once

#include <string>
#include <string_view>

namespace triax {

/// Bytes that come in any pieces, handed on as whole characters: the begin of one is held back until the rest
/// is there. What is no UTF-8 becomes U+FFFD, one for each maximal part (the Unicode Standard, section 3.9;
/// Python's errors="replace").
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  /// What was held back, when nothing more comes.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace triax
