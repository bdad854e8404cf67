#pragma once

#include <vector>

#include "pipeline/action.h"

namespace triax {

/// Proves that a schedule can run and computes the right thing, or throws an Error naming stage, action index
/// (from 0) and reason. What it proves:
///
/// - each micro-batch of each chunk goes forward once and backward once (`backward`, or `backward_input` then
///   `backward_weight`; not in an evaluation), the backward after the forward, each kind in ascending
///   micro-batch order;
/// - each input and gradient that comes from another stage is received once, before it is used, and each one
///   that another stage needs is sent once, after it was made; one buffer per direction is enough: an output
///   is sent before the next one is made, a received gradient is used before the next one is received; with
///   one stage, where chunks hand over without messages, it is taken before the next one is made;
/// - on each channel (from, to, forward or backward) the sends and the receives name the same messages in the
///   same order;
/// - there is no deadlock even when no message is buffered, so that a send ends only when its receive has
///   come. The executor starts a send and goes on; it waits for it before it fills the same direction's
///   buffer again, and at the end. The channels of opposite directions do not wait for each other.
void validate(const Schedule& schedule);

/// Where the activations of one stage are kept: slot_of(chunk, micro_batch) is held from the arrival of the
/// input (or from the forward, where nothing arrives) to the end of the backward or of its weight half (of
/// the forward in an evaluation). Slots are shared by the chunks of a stage; none is held by two at once, and
/// `count` is the least possible.
struct SlotPlan {
  int count = 0;
  int micro_batches = 0;
  std::vector<int> slots;  ///< [virtual_stages * micro_batches]
  int slot_of(int chunk, int micro_batch) const { return slots[chunk * micro_batches + micro_batch]; }
};

/// The slots of each stage of a valid schedule.
std::vector<SlotPlan> assign_slots(const Schedule& schedule);

/// Per stage, how many activations of (micro-batch, chunk) are kept at once at most: the counts of
/// assign_slots(). GPipe keeps m, 1F1B min(m, p - i).
std::vector<int> in_flight(const Schedule& schedule);

}  // namespace triax
