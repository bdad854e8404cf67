#pragma once

#include <memory>

#include "comm/nccl/connect.h"

namespace triax {

/// A group of processes over NCCL, whose tensors lie in their GPUs. The host only enqueues; it waits where
/// Device::synchronize() and read() do, and before more than a bounded number of operations are under way.
///
/// Collectives have one communicator of NCCL for all members, and messages (DeviceMessages::route) one for
/// each pair of which one sends to the other, so that no message queues behind another; each has a stream of
/// its own. The one for all is made by the group's first collective, which waits until all members have come
/// to theirs; those for messages are made here, by a barrier, and are connected then. Groups that are split
/// from this one have no messages. The ids travel over `group`, which keeps barriers, splits and tensors of
/// the host. Collective.
///
/// Sums of integers, and of f32 and f64 without DeviceMessages::rank_order, are NCCL's own. NCCL would round
/// bf16 after each addition, add floats in an order that depends on size and network, and drop a NaN from a
/// maximum; so all others go around it: each rank gets its part of all inputs, adds them in rank order
/// (`add`) and hands out the result, with the bytes of a ring.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> group, CudaDevice& device,
                                                     const DeviceMessages& messages, AddPieces add);

}  // namespace triax
