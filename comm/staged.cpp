// Tensors of a device pass through the host's memory on their way to other processes.

#include <map>

#include "comm/device_link.h"
#include "comm/over_host.h"
#include "core/error.h"

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

class StagedCommunicator final : public OverHost {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, Device& device, const std::string& why)
      : OverHost(std::move(host), "host memory: " + why),
        device_(&device),
        why_(why),
        blocks_(std::make_shared<Blocks>(device)) {}

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

  Pending device_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) override {
    return run(&in, &out, [&](const Tensor& a, const Tensor& b) { return host_all_reduce(call, a, b, op); });
  }
  Pending device_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) override {
    return run(&in, &out, [&](const Tensor& a, const Tensor& b) { return host_all_gather(call, a, b); });
  }
  Pending device_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out,
                                ReduceOp op) override {
    return run(&in, &out,
               [&](const Tensor& a, const Tensor& b) { return host_reduce_scatter(call, a, b, op); });
  }
  Pending device_broadcast(const CommCall& call, const Tensor& inout, int root) override {
    return run(&inout, &inout, [&](const Tensor&, const Tensor& b) { return host_broadcast(call, b, root); });
  }
  Pending device_send(const CommCall& call, const Tensor& in, int to) override {
    return run(&in, nullptr, [&](const Tensor& a, const Tensor&) { return host_send(call, a, to); });
  }
  Pending device_recv(const CommCall& call, const Tensor& out, int from) override {
    return run(nullptr, &out, [&](const Tensor&, const Tensor& b) { return host_recv(call, b, from); });
  }
  std::unique_ptr<Communicator> take(std::unique_ptr<Communicator> host) override {
    if (host->size() == 1) return make_alone(*host, {device_, nullptr});
    return std::make_unique<StagedCommunicator>(std::move(host), *device_, why_);
  }

  Device* device_;
  std::string why_;
  std::shared_ptr<Blocks> blocks_;
};

}  // namespace

std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> group, const DeviceMemory& memory,
                                        const DeviceMessages& messages) {
  if (!group || memory.device->kind() == DeviceKind::cpu) return group;
  if (group->use_device(memory)) {
    if (messages.transport == "nccl" && memory.link && group->size() > 1)
      fail_usage(
          "parallel.transport: nccl: the ranks are threads of one process, which exchange tensors in the "
          "GPU's memory; start one process for each GPU (mpirun, srun), or set transport to auto");
    return group;
  }
  if (group->size() == 1) return make_alone(*group, memory);
  std::string why = "parallel.transport is host";
  if (messages.transport != "host") {
    why = "this device has no network of its own";
    if (memory.link)
      if (auto connected = memory.link->connect(group, *memory.device, messages, why)) return connected;
    if (messages.transport == "nccl")
      fail_usage(
          "parallel.transport: nccl: group '{}' can't use it: {}; start one rank for each GPU, or set "
          "transport to auto or host",
          group->name(), why);
  }
  return std::make_unique<StagedCommunicator>(std::move(group), *memory.device, why);
}

}  // namespace triax
