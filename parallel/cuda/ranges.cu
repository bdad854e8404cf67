#include "parallel/cuda/ranges.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace triax {

namespace {

void begin(std::string_view name, const Trace::Number* numbers, size_t count) {
  std::string text(name);
  for (size_t i = 0; i < count; ++i) text += fmt::format(", {} {}", numbers[i].first, numbers[i].second);
  nvtxRangePushA(text.c_str());
}

void end() {
  nvtxRangePop();
}

}  // namespace

const ProfilerRanges& nvtx_ranges() {
  static constexpr ProfilerRanges ranges{begin, end};
  return ranges;
}

}  // namespace triax
