#pragma once

#include <utility>

#include "comm/communicator.h"

namespace triax {

/// A group whose tensors lie in a device's memory, made of one of the host, which it owns and stands for:
/// barriers, splits and tensors of the host's memory (HostTensors) are that one's.
class OverHost : public Communicator {
 protected:
  OverHost(std::unique_ptr<Communicator> host, std::string transport)
      : Communicator(*host, std::move(transport)), host_(std::move(host)) {}

  // The operations on the device's memory: Communicator's do_...
  virtual Pending device_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out,
                                    ReduceOp op) = 0;
  virtual Pending device_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) = 0;
  virtual Pending device_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out,
                                        ReduceOp op) = 0;
  virtual Pending device_broadcast(const CommCall& call, const Tensor& inout, int root) = 0;
  virtual Pending device_send(const CommCall& call, const Tensor& in, int to) = 0;
  virtual Pending device_recv(const CommCall& call, const Tensor& out, int from) = 0;
  void do_barrier(const CommCall& call) override { host_->do_barrier(call); }
  /// A group that was split from the host's.
  virtual std::unique_ptr<Communicator> take(std::unique_ptr<Communicator> host) = 0;

  // The same on tensors of the host's memory, as part of an operation that has been recorded.
  Pending host_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) {
    return host_->do_all_reduce(call, in, out, op);
  }
  Pending host_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) {
    return host_->do_all_gather(call, in, out);
  }
  Pending host_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) {
    return host_->do_reduce_scatter(call, in, out, op);
  }
  Pending host_broadcast(const CommCall& call, const Tensor& inout, int root) {
    return host_->do_broadcast(call, inout, root);
  }
  Pending host_send(const CommCall& call, const Tensor& in, int to) { return host_->do_send(call, in, to); }
  Pending host_recv(const CommCall& call, const Tensor& out, int from) {
    return host_->do_recv(call, out, from);
  }

 private:
  Pending do_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) final {
    return takes_host_tensors() ? host_all_reduce(call, in, out, op) : device_all_reduce(call, in, out, op);
  }
  Pending do_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) final {
    return takes_host_tensors() ? host_all_gather(call, in, out) : device_all_gather(call, in, out);
  }
  Pending do_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) final {
    return takes_host_tensors() ? host_reduce_scatter(call, in, out, op)
                                : device_reduce_scatter(call, in, out, op);
  }
  Pending do_broadcast(const CommCall& call, const Tensor& inout, int root) final {
    return takes_host_tensors() ? host_broadcast(call, inout, root) : device_broadcast(call, inout, root);
  }
  Pending do_send(const CommCall& call, const Tensor& in, int to) final {
    return takes_host_tensors() ? host_send(call, in, to) : device_send(call, in, to);
  }
  Pending do_recv(const CommCall& call, const Tensor& out, int from) final {
    return takes_host_tensors() ? host_recv(call, out, from) : device_recv(call, out, from);
  }
  std::unique_ptr<Communicator> do_split(const CommCall& call, int color, std::string name) final {
    auto part = host_->do_split(call, color, std::move(name));
    return part ? take(std::move(part)) : nullptr;
  }

  std::unique_ptr<Communicator> host_;
};

/// `group`, which has one member, without its transport, whose sums would read and write a tensor once more.
/// The tensors lie in the memory of `memory.device`; without a device on the host.
std::unique_ptr<Communicator> make_alone(const Communicator& group, const DeviceMemory& memory);

}  // namespace triax
