#pragma once

#include "engine/config.h"

namespace triax {

/// A job small enough to be checked in seconds that a grid treats like the given one: the same grid,
/// schedule, options and seed; the same ratios of heads to key-value heads to tensor ranks, of intermediate
/// to hidden size, of micro-batches to stages; uneven where the job is uneven (layers over chunks, vocabulary
/// over tensor ranks); where activations may lie beside a tied table, a gradient bucket as large beside that.
/// Extents are never larger than the job's. Ten steps at a constant learning rate; nothing is read or
/// written.
RunConfig shrink(const RunConfig& job);

/// The same mathematics on one rank, with no option of the grid switched on: what a grid's run is compared
/// with. In one micro-batch where the job has several, in several where it has one: a fault of either way is
/// not in both runs. A batch of one sequence is computed under zb-h1, which lends no memory to activations.
RunConfig on_one_rank(const RunConfig& job);

}  // namespace triax
