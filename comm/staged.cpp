// Tensors of a device pass through the host's memory on their way to other processes.

#include <map>

#include "comm/device_link.h"

namespace triax {

namespace {

/// Page-locked blocks, used again by later operations of the group.
class Blocks {
 public:
  explicit Blocks(Device& device) : device_(&device) {}
  ~Blocks() {
    for (const auto& [bytes, block] : free_) device_->deallocate_host(block, bytes);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  std::pair<size_t, void*> take(size_t bytes) {
    const auto found = free_.lower_bound(bytes);
    if (found == free_.end() || found->first > 2 * bytes + 4096)
      return {bytes, device_->allocate_host(bytes, "messages on their way between device and host")};
    const std::pair<size_t, void*> block = *found;
    free_.erase(found);
    return block;
  }
  void give(const std::pair<size_t, void*>& block) { free_.insert(block); }

 private:
  Device* device_;
  std::multimap<size_t, void*> free_;
};

/// A host copy of a tensor for the time of an operation.
class HostCopy {
 public:
  HostCopy(std::shared_ptr<Blocks> blocks, const Tensor& like)
      : blocks_(std::move(blocks)),
        block_(blocks_->take(like.bytes())),
        tensor_(block_.second, like.dtype(), like.shape()) {}
  ~HostCopy() { blocks_->give(block_); }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  const Tensor& tensor() const { return tensor_; }

 private:
  std::shared_ptr<Blocks> blocks_;
  std::pair<size_t, void*> block_;
  Tensor tensor_;
};

}  // namespace

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, const DeviceMemory& memory)
      : Communicator(host->rank(), {host->name(), host->size(), host->members()}, host->shared_recorder()),
        host_(std::move(host)),
        device_(memory.device),
        blocks_(std::make_shared<Blocks>(*memory.device)) {}

 private:
  /// The operation on the host; what it wrote goes to the device when it is done.
  struct State final : Pending::State {
    void wait() override {
      operation.wait();
      if (result) device->write(out.raw(), result->tensor().raw(), out.bytes());
    }
    ~State() noexcept override {}        // wait() or abandon() has come before: nothing is left to throw
    void abandon() noexcept override {}  // the operation itself, when this is destroyed
    Pending::Span work() const override { return span; }
    Device* device = nullptr;
    std::unique_ptr<HostCopy> input, result;
    Tensor out;
    Pending::Span span{Pending::Clock::now(), Pending::Clock::now()};
    Pending operation;  // goes first
  };

  std::unique_ptr<HostCopy> copy_of(const Tensor& tensor, bool with_content) {
    auto copy = std::make_unique<HostCopy>(blocks_, tensor);
    if (with_content) device_->read(copy->tensor().raw(), tensor.raw(), tensor.bytes());
    return copy;
  }

  /// start(in, out) on host copies: of `in` with its content, and of `out`, unless that is the same.
  template <class Start>
  Pending run(const Tensor* in, const Tensor* out, Start&& start) {
    auto state = std::make_unique<State>();
    state->device = device_;
    if (out) {
      const bool same = in && in->raw() == out->raw() && in->bytes() == out->bytes();
      state->result = copy_of(*out, same);
      state->out = *out;
      if (in && !same) state->input = copy_of(*in, true);
      state->operation =
          start(state->input ? state->input->tensor() : state->result->tensor(), state->result->tensor());
    } else {
      state->input = copy_of(*in, true);
      state->operation = start(state->input->tensor(), Tensor());
    }
    return Pending(std::move(state));
  }

  Pending do_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) override {
    if (takes_host_tensors()) return host_->do_all_reduce(call, in, out, op);
    return run(&in, &out,
               [&](const Tensor& a, const Tensor& b) { return host_->do_all_reduce(call, a, b, op); });
  }
  Pending do_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) override {
    if (takes_host_tensors()) return host_->do_all_gather(call, in, out);
    return run(&in, &out, [&](const Tensor& a, const Tensor& b) { return host_->do_all_gather(call, a, b); });
  }
  Pending do_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) override {
    if (takes_host_tensors()) return host_->do_reduce_scatter(call, in, out, op);
    return run(&in, &out,
               [&](const Tensor& a, const Tensor& b) { return host_->do_reduce_scatter(call, a, b, op); });
  }
  Pending do_broadcast(const CommCall& call, const Tensor& inout, int root) override {
    if (takes_host_tensors()) return host_->do_broadcast(call, inout, root);
    return run(&inout, &inout,
               [&](const Tensor&, const Tensor& b) { return host_->do_broadcast(call, b, root); });
  }
  Pending do_send(const CommCall& call, const Tensor& in, int to) override {
    if (takes_host_tensors()) return host_->do_send(call, in, to);
    return run(&in, nullptr, [&](const Tensor& a, const Tensor&) { return host_->do_send(call, a, to); });
  }
  Pending do_recv(const CommCall& call, const Tensor& out, int from) override {
    if (takes_host_tensors()) return host_->do_recv(call, out, from);
    return run(nullptr, &out, [&](const Tensor&, const Tensor& b) { return host_->do_recv(call, b, from); });
  }
  void do_barrier(const CommCall& call) override { host_->do_barrier(call); }
  std::unique_ptr<Communicator> do_split(const CommCall& call, int color, std::string name) override {
    return on_device(host_->do_split(call, color, std::move(name)), {device_, nullptr});
  }

  std::unique_ptr<Communicator> host_;
  Device* device_;
  std::shared_ptr<Blocks> blocks_;
};

std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> group, const DeviceMemory& memory) {
  if (!group || memory.device->kind() == DeviceKind::cpu || group->use_device(memory)) return group;
  if (memory.link)
    if (auto connected = memory.link->connect(group, *memory.device)) return connected;
  return std::make_unique<StagedCommunicator>(std::move(group), memory);
}

}  // namespace triax
