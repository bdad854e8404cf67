#pragma once

#include <memory>

#include "comm/communicator.h"
#include "core/device.h"

namespace triax {

/// Which ranks of a group send messages (Communicator::send) to which.
struct MessageRoute {
  int step = 0;         ///< each to the one `step` after it, 1 or -1; 0: nobody sends
  bool around = false;  ///< also over the ends: with step 1 from the last rank to the first
};

/// How processes exchange tensors of their devices.
struct DeviceMessages {
  /// auto: over the devices' network where each member of the group has a device of its own, else through the
  /// host's memory; nccl: only over that network; host: never. parallel.transport.
  std::string transport = "auto";
  /// All sums in rank order: training.deterministic.
  bool rank_order = false;
  /// Over the devices' network messages need connections, which are made with the group.
  MessageRoute route = {};
};

/// How ranks that are threads of one process work on each other's device memory: what a library of a device
/// (CUDA) brings for communication. Stateless; any rank's thread calls it with its own device.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  /// A point in the order of what a device was given.
  using Event = std::shared_ptr<void>;
  /// All that has been enqueued on `device` so far.
  virtual Event record(Device& device) = 0;
  /// What is enqueued on `device` from now on begins when the event, of this or another device, has been
  /// reached. The host does not wait.
  virtual void wait(Device& device, const Event& event) = 0;
  /// outputs[k][i] = inputs[0][i] op inputs[1][i] op ... for all k, with the bits of reduce_piece()
  /// (comm/reduce.h) and for any count: enqueued. Outputs may be inputs.
  virtual void reduce(Device& device, DType dtype, ReduceOp op, const std::vector<const void*>& inputs,
                      int64_t count, const std::vector<void*>& outputs) = 0;
  /// A group of processes over the devices' own network (CUDA: NCCL): takes `group` and returns what stands
  /// for it. Null, with the reason in `why`, where members share a device; `group` stays then. Collective,
  /// with the same answer on all members. A usage error on all of them where the network itself is missing.
  virtual std::unique_ptr<Communicator> connect(std::unique_ptr<Communicator>& group, Device& device,
                                                const DeviceMessages& messages, std::string& why) {
    (void)group, (void)device, (void)messages;
    why = "this device has no network of its own";
    return nullptr;
  }
};

/// Where the tensors of a group's operations lie.
struct DeviceMemory {
  Device* device = nullptr;
  DeviceLink* link = nullptr;
};

/// `group` with tensors in the memory of `memory.device`, this rank's own. Operations order themselves with
/// what is enqueued on the device: a started operation reads what was enqueued before it, and after wait()
/// what is enqueued sees its result; the host may be ahead of both. Thread ranks work in the device's memory
/// (`group` itself is returned); processes are connected by the link where it can, else tensors pass through
/// the host's memory: transport() says which, and why. Collective over the group. A usage error where
/// `messages` asks for what can't be.
std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> group, const DeviceMemory& memory,
                                        const DeviceMessages& messages = {});

}  // namespace triax
