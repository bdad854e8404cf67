#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triax {

/// One rank's record of what it did when, while it is on; off, a span costs a comparison. Handed by pointer
/// to whoever has spans to tell; used by the rank's own thread only.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Number = std::pair<std::string_view, int64_t>;  ///< name and value; the name outlives the trace
  struct Span {
    std::string track;            ///< spans of a track lie beside or inside each other
    std::string name;             ///< what was done
    double start = 0, end = 0;    ///< milliseconds after start()'s origin
    std::vector<Number> numbers;  ///< micro-batch, bytes, ...
    bool overlaps = false;        ///< may overlap others of its track in any way: an operation under way
  };

  /// Forgets everything, spans that are open included, and records from now on; times count from `origin`.
  void start(Clock::time_point origin = Clock::now());
  void stop() { on_ = false; }
  bool on() const { return on_; }
  const std::vector<Span>& spans() const { return spans_; }

  /// Opens a span and returns its number for close(); -1 while the trace is off.
  int64_t open(std::string_view track, std::string_view name, std::initializer_list<Number> numbers = {},
               bool overlaps = false);
  void close(int64_t span);

 private:
  double now() const;

  bool on_ = false;
  Clock::time_point origin_{};
  std::vector<Span> spans_;
};

/// Where a profiler of the device (Nsight Systems, by NVTX) learns what the calling thread does: ranges that
/// lie inside each other. Whoever brings a device sets it, once, before ranks begin; without one a range
/// costs a comparison. Ranges do not depend on whether a trace is on.
struct ProfilerRanges {
  /// `numbers`, `count` of them, belong into the range's name.
  void (*begin)(std::string_view name, const Trace::Number* numbers, size_t count);
  void (*end)();
};
void set_profiler_ranges(const ProfilerRanges* ranges);
inline std::atomic<const ProfilerRanges*> profiler_ranges_{nullptr};  // set_profiler_ranges()
/// Begins a range, which the caller is to end; false, and nothing to end, without a profiler.
inline bool begin_range(std::string_view name, std::initializer_list<Trace::Number> numbers = {}) {
  const ProfilerRanges* ranges = profiler_ranges_.load(std::memory_order_relaxed);
  if (ranges) ranges->begin(name, numbers.begin(), numbers.size());
  return ranges != nullptr;
}
inline void end_range() {
  profiler_ranges_.load(std::memory_order_relaxed)->end();
}

/// A range from here to the end of the scope, of what is no span.
class RangeScope {
 public:
  explicit RangeScope(std::string_view name, std::initializer_list<Trace::Number> numbers = {})
      : range_(begin_range(name, numbers)) {}
  ~RangeScope() {
    if (range_) end_range();
  }
  RangeScope(const RangeScope&) = delete;
  RangeScope& operator=(const RangeScope&) = delete;

 private:
  bool range_;
};

/// A span, and a profiler's range, from here to the end of the scope. `trace` may be null.
class TraceScope {
 public:
  TraceScope(Trace* trace, std::string_view track, std::string_view name,
             std::initializer_list<Trace::Number> numbers = {})
      : trace_(trace),
        span_(trace ? trace->open(track, name, numbers) : -1),
        range_(begin_range(name, numbers)) {}
  ~TraceScope() {
    if (range_) end_range();
    if (trace_) trace_->close(span_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  int64_t span_;
  bool range_;
};

/// Phases of one track, as spans and ranges, each from its begin() to the next one's or to the end of the
/// scope.
class TracePhases {
 public:
  TracePhases(Trace* trace, std::string_view track) : trace_(trace), track_(track) {}
  ~TracePhases() { end(); }
  TracePhases(const TracePhases&) = delete;
  TracePhases& operator=(const TracePhases&) = delete;
  void begin(std::string_view name) {
    end();
    if (trace_) span_ = trace_->open(track_, name);
    range_ = begin_range(name);
  }
  void end() {
    if (range_) end_range();
    if (trace_) trace_->close(span_);
    span_ = -1;
    range_ = false;
  }

 private:
  Trace* trace_;
  std::string track_;
  int64_t span_ = -1;
  bool range_ = false;
};

}  // namespace triax
