#include "parallel/cuda/ranges.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>

namespace triax {

namespace {

void begin(std::string_view name, const Trace::Number* numbers, size_t count) {
  // Without memory of the heap: this is done for each range, whether a profiler is there or not.
  char text[128];
  size_t at = 0;
  const auto put = [&](fmt::string_view piece) {
    const size_t n = std::min(piece.size(), sizeof text - 1 - at);
    std::copy_n(piece.data(), n, text + at);
    at += n;
  };
  put({name.data(), name.size()});
  for (size_t i = 0; i < count; ++i) {
    const std::string_view what = numbers[i].first;
    put(", ");
    put({what.data(), what.size()});
    put(" ");
    put(fmt::format_int(numbers[i].second).c_str());
  }
  text[at] = 0;
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
