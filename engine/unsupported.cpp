#include <fmt/format.h>

#include "engine/legal.h"

namespace triax {

std::vector<std::string> unsupported(const RunConfig& c) {
  std::vector<std::string> list;
  const auto refuse = [&](bool asked, const std::string& what, const std::string& instead) {
    if (asked)
      list.push_back(fmt::format("{} is not supported by this version; it can be {}", what, instead));
  };
  const auto& t = c.training;
  refuse(t.device == "cuda", "training.device: cuda", "auto or cpu");
  return list;
}

}  // namespace triax
