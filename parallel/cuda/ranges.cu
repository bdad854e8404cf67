#include "parallel/cuda/ranges.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

namespace triax {

namespace {

void begin(std::string_view name, const Trace::Number* numbers, size_t count) {
  fmt::memory_buffer text;  // of a few hundred characters, on the stack
  text.append(name);
  for (size_t i = 0; i < count; ++i)
    fmt::format_to(std::back_inserter(text), ", {} {}", numbers[i].first, numbers[i].second);
  text.push_back('\0');
  nvtxRangePushA(text.data());
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
