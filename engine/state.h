#pragma once

#include <vector>

#include "checkpoint/state.h"
#include "engine/trainer.h"

namespace triax {

/// What this rank writes into a checkpoint: its own ZeRO slices of the weights and moments that it counts.
/// Over all ranks every logical element appears once. On the CPU where they lie, of another device's memory a
/// snapshot (snapshot_to_save()).
std::vector<StatePiece> pieces_to_save(Trainer& trainer);
/// Elements of a snapshot: room for every element of this rank's slices, so that all ranks of a stage take
/// the same memory, also those that count fewer of their parameters.
int64_t elements_to_save(Trainer& trainer);
/// A copy of them in Trainer::snapshot(), which the next call overwrites; the training state may change as
/// soon as this returns.
std::vector<StatePiece> snapshot_to_save(Trainer& trainer);
/// What this rank needs of one: all its weights, copies included (with bf16 weights the masters that it
/// updates), and (unless weights_only) the moments that it updates. Trainer::state_loaded() ends loading.
std::vector<StatePiece> pieces_to_load(Trainer& trainer, bool weights_only = false);
/// The logical parts of this rank's own slices of the gradients that it counts, after their reduction
/// (StateKind is of no meaning here). Of another memory than the host's copies, until the next call.
std::vector<StatePiece> gradient_pieces(Trainer& trainer);

}  // namespace triax
