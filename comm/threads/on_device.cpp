#include "comm/threads/group.h"

namespace triax {

namespace {

// The inputs' and the outputs' places of one part of the work.
void reduce_part(const Collective& c, DeviceLink& link, Device& device, int64_t offset,
                 const std::vector<void*>& outputs) {
  std::vector<const void*> inputs;
  for (const Collective::Part& part : c.parts) inputs.push_back(part.in + offset);
  link.reduce(device, c.call.dtype, static_cast<ReduceOp>(c.call.detail), inputs, c.elements, outputs);
}

}  // namespace

// A part of a reduce-scatter in place writes where later parts do not read: each rank's output is its own
// part of its own input, and the parts do not overlap.
void run_on_device(Collective& c, int rank, const std::string& group, Recorder& recorder) {
  Device& device = *c.parts[rank].memory.device;
  DeviceLink& link = *c.parts[rank].memory.link;
  for (size_t r = 0; r < c.parts.size(); ++r)
    if (static_cast<int>(r) != rank) link.wait(device, c.parts[r].ready);
  const int begin = recorder.begin_moving();
  const size_t width = size_of(c.call.dtype), bytes = static_cast<size_t>(c.elements) * width;
  switch (c.call.op) {
    case CommOp::all_reduce: {
      std::vector<void*> outputs;
      for (const Collective::Part& part : c.parts) outputs.push_back(part.out);
      reduce_part(c, link, device, 0, outputs);
      break;
    }
    case CommOp::reduce_scatter:
      for (size_t r = 0; r < c.parts.size(); ++r)
        reduce_part(c, link, device, static_cast<int64_t>(r * bytes), {c.parts[r].out});
      break;
    case CommOp::all_gather:
      for (size_t from = 0; from < c.parts.size(); ++from)
        for (const Collective::Part& to : c.parts)
          device.copy(to.out + from * bytes, c.parts[from].in, bytes);
      break;
    case CommOp::broadcast:
      for (const Collective::Part& to : c.parts)
        device.copy(to.out, c.parts[static_cast<size_t>(c.call.detail)].out, bytes);
      break;
    default:
      break;
  }
  recorder.end_moving(begin, group, c.call.op);
  c.done_on_device = link.record(device);
}

}  // namespace triax
