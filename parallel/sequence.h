#pragma once

#include "parallel/module.h"

namespace triax {

// Sequence parallelism (Korthikanti et al., "Reducing activation recomputation in large transformer models",
// 2022). Norms, residual sums and dropout treat each row for itself, so every tensor rank does them for a
// t-th of the micro-batch's T = B S rows (rank r has rows r T/t and on, in the order of memory). A layer that
// is cut over the tensor group needs all rows: gather_rows() on the way in, an all-gather where f of
// Megatron-LM (Shoeybi et al. 2019) is the identity; sum_rows() on the way out, a reduce-scatter where its g
// is an all-reduce (Korthikanti et al. call these two g and g-bar). Backward each is the other's. A
// reduce-scatter and an all-gather send what one all-reduce sends.
//
// Without sequence parallelism the two functions are f and g, so that a layer is written once.

/// Memory [T, n] for this rank's addends to a result of which it gets `local` in the end: for sum_rows().
Tensor addends_of(Pass& pass, const Tensor& local, Scratch::Frame& frame);

/// All rows [T, n] of `local` [T/t, n]: gathered into scratch memory of the frame. Without sequence
/// parallelism `local` itself. Done when it returns.
Tensor gather_rows(Pass& pass, const Tensor& local, Scratch::Frame& frame);

/// local = this rank's rows of the sum of all tensor ranks' addends (without sequence parallelism all rows).
/// Started; done after wait().
[[nodiscard]] Pending sum_rows(Pass& pass, const Tensor& addends, const Tensor& local);

/// The t-th of a tensor's elements that belongs to this tensor rank when all hold the same: a flat view.
/// Hidden size is divisible by t, so this always fits.
Tensor part_of(const Communicator& tp, const Tensor& whole);
/// whole = all tensor ranks' parts; `part` lies in `whole` or apart from it. Done when it returns.
void join_parts(Communicator& tp, const Tensor& part, const Tensor& whole);

}  // namespace triax
