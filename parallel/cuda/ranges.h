#pragma once

#include "core/trace.h"

namespace triax {

/// NVTX ranges (nvtx3, headers alone: without a profiler that is attached a range is a comparison), named
/// "forward, micro_batch 3, chunk 0".
const ProfilerRanges& nvtx_ranges();

}  // namespace triax
