#include "launch/banners.h"

#include <utility>

namespace triax {

namespace {

bool is_dashes(const std::string& line) {
  return line.size() > 40 && line.find_first_not_of("-\n") == std::string::npos;
}

bool tells_of_a_status(const std::string& block) {
  return block.find("a non-zero exit code") != std::string::npos ||
         block.find("exited with non-zero status") != std::string::npos;
}

}  // namespace

std::string Banners::pass(const char* text, size_t size, bool stopping) {
  std::string shown;
  for (size_t i = 0; i < size; ++i) {
    line_.push_back(text[i]);
    if (text[i] != '\n') continue;
    const bool dashes = is_dashes(line_), inside = !block_.empty();
    if (!inside && !(dashes && stopping)) {
      shown += std::exchange(line_, {});
      continue;
    }
    block_ += std::exchange(line_, {});
    if (!inside || !dashes) continue;
    if (!tells_of_a_status(block_)) shown += block_;
    block_.clear();
  }
  if (block_.empty() && !(stopping && line_.find_first_not_of('-') == std::string::npos))
    shown += std::exchange(line_, {});
  return shown;
}

std::string Banners::rest() {
  return std::exchange(block_, {}) + std::exchange(line_, {});
}

}  // namespace triax
