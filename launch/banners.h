#pragma once

#include <string>

namespace triax {

/// mpirun's standard error without its notices that a process "exited with non-zero status": after a stop on
/// request every rank does, and the notices read like a failure. Such a notice stands between two lines of
/// dashes; everything else passes at once.
class Banners {
 public:
  /// What of this text is to be shown now; `stopping`: a stop was asked for, so that the notices go.
  std::string pass(const char* text, size_t size, bool stopping);
  /// What is still held back at the end.
  std::string rest();

 private:
  std::string line_, block_;  // begun; block_ is not empty between the two lines of dashes
};

}  // namespace triax
