#include "core/trace.h"

namespace triax {

void set_profiler_ranges(const ProfilerRanges* ranges) {
  profiler_ranges_.store(ranges);
}

double Trace::now() const {
  return std::chrono::duration<double, std::milli>(Clock::now() - origin_).count();
}

void Trace::start(Clock::time_point origin) {
  spans_.clear();
  origin_ = origin;
  on_ = true;
}

int64_t Trace::open(std::string_view track, std::string_view name, std::initializer_list<Number> numbers,
                    bool overlaps) {
  if (!on_) return -1;
  const double start = now();
  spans_.push_back(
      {std::string(track), std::string(name), start, start, std::vector<Number>(numbers), overlaps});
  return static_cast<int64_t>(spans_.size()) - 1;
}

void Trace::close(int64_t span) {
  if (span >= 0 && span < static_cast<int64_t>(spans_.size())) spans_[static_cast<size_t>(span)].end = now();
}

}  // namespace triax
