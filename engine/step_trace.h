#pragma once

#include <string>

#include "comm/communicator.h"
#include "core/trace.h"
#include "parallel/grid.h"
#include "pipeline/simulate.h"

namespace triax {

/// Starts `trace` at the same moment on all ranks: after a barrier, and with one origin where the ranks share
/// a host and its clock (`one_host`); elsewhere the origins differ by what the barrier leaves. Collective.
void start_together(Trace& trace, Communicator& world, bool one_host);

/// Writes one rank's trace of step `step` as JSON of Chrome's trace event format, which ui.perfetto.dev and
/// chrome://tracing open: a process per rank, a thread per track; operations that overlap are asynchronous
/// events of their group. `otherData` holds step, rank, grid coordinates and schedule. Makes the folder;
/// throws Error(fault) when it can't be written.
void write_trace(const std::string& path, const Trace& trace, int64_t step, const Grid& grid, int rank,
                 const ScheduleShape& schedule);

/// A step as it was: what the first tensor and data rank of each stage did when.
struct MeasuredStep {
  int64_t step = 0;
  Timeline timeline;
};

/// Reads a step's traces: `path` is their folder, or a run's folder with traces in it, of which the newest
/// are taken. Error(usage) when there are none, a stage is missing, or one can't be read.
MeasuredStep read_traces(const std::string& path);

}  // namespace triax
