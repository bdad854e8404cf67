#pragma once

#include <string>

#include "engine/state.h"

namespace triax {

/// Writes gradients/step-XXXXXXXX.h5: /gradients/<logical name>, whole logical tensors, averaged over the
/// batch, before clipping. Collective; the ranks write one after the other. Call it when the gradients are
/// reduced.
void dump_gradients(const std::string& path, Communicator& world, Trainer& trainer, const ModelConfig& model);
/// Writes batches/step-XXXXXXXX.h5: /tokens [global_batch, sequence + 1] int32 in sample order, from the rows
/// that the data ranks were given. `rows` [count, S + 1] lie at `first` in the batch; ranks that write none
/// pass count 0. Collective.
void dump_batch(const std::string& path, Communicator& world, const int32_t* rows, int64_t first,
                int64_t count, int64_t global_batch, int64_t sequence_length);

}  // namespace triax
