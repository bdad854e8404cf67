#include "parallel/cuda/ranges.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

namespace triax {

namespace {

void begin(std::string_view name, const Trace::Number* numbers, size_t count) {
  // Without memory of the heap: this is done for each range, whether a profiler is there or not.
  char text[128];
  char* const end = text + sizeof text - 1;
  const auto put = [&](char* at, fmt::string_view words, const auto&... values) {
    return fmt::vformat_to_n(at, static_cast<size_t>(end - at), words, fmt::make_format_args(values...)).out;
  };
  char* at = put(text, "{}", name);
  for (size_t i = 0; i < count; ++i) at = put(at, ", {} {}", numbers[i].first, numbers[i].second);
  *at = 0;
  nvtxRangePushA(text);
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
