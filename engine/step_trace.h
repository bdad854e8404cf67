#pragma once

#include <string>

#include "comm/communicator.h"
#include "core/trace.h"
#include "parallel/grid.h"
#include "pipeline/simulate.h"

namespace triax {

/// Starts `trace` at the same moment on all ranks: after a barrier, and with one origin where the ranks share
/// a host and its clock (`one_host`); elsewhere the origins differ by what the barrier leaves. Returns the
/// origin. Collective.
Trace::Clock::time_point start_together(Trace& trace, Communicator& world, bool one_host);

/// What one rank did in a step.
struct StepTrace {
  int64_t step = 0;
  Trace::Clock::time_point origin{};
  std::vector<Trace::Span> spans;

  /// Adds what another thread of the rank did, between two moments of the clock.
  void add(std::string track, std::string name, Trace::Clock::time_point begin, Trace::Clock::time_point end);
};

/// Writes the traces of all ranks as one JSON file of Chrome's trace event format, which ui.perfetto.dev and
/// chrome://tracing open: a process per rank, named with its coordinates, and a thread per track; operations
/// that overlap are asynchronous events of their group, and an arrow (a flow event) leads from each pipeline
/// message's send to its receive. A rank's events are in the order of their times, in microseconds.
/// `otherData` holds step, grid and schedule. Makes the folder; the file is replaced atomically, and rank 0
/// holds one rank's events at a time. Throws Error(fault) on all ranks when it can't be written. Collective.
void write_trace(const std::string& path, const StepTrace& trace, Communicator& world, const Grid& grid,
                 const ScheduleShape& schedule);

/// A step as it was: what the first tensor and data rank of each stage did when.
struct MeasuredStep {
  int64_t step = 0;
  Timeline timeline;
};

/// Reads a step's trace: `path` is its file, or a run's folder with traces in it, of which the newest is
/// taken. Error(usage) when there is none, a stage is missing, or it can't be read.
MeasuredStep read_traces(const std::string& path);

}  // namespace triax
