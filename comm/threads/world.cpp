#include <exception>

#include "comm/over_host.h"
#include "comm/threads/group.h"

namespace triax {
namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, std::shared_ptr<Recorder> recorder)
      : Communicator(rank, {group->name(), group->size(), group->members()}, std::move(recorder)),
        group_(std::move(group)) {}
  ~ThreadCommunicator() override { group_->leave(rank(), std::uncaught_exceptions() > 0); }

 private:
  struct CollectiveState final : Pending::State {
    CollectiveState(std::shared_ptr<ThreadGroup> g, std::shared_ptr<Collective> c, int r, const CommCall& k)
        : group(std::move(g)), collective(std::move(c)), rank(r), call(k) {}
    void wait() override {
      group->wait(*collective, rank, call);
      if (memory.device) memory.link->wait(*memory.device, collective->done_on_device);
    }
    void abandon() noexcept override { group->abandon(*collective, rank); }
    Pending::Span work() const override { return collective->span; }
    std::shared_ptr<ThreadGroup> group;
    std::shared_ptr<Collective> collective;
    int rank;
    CommCall call;
    DeviceMemory memory{};  // of the collective's buffers
  };
  struct MessageState final : Pending::State {
    MessageState(std::shared_ptr<ThreadGroup> g, std::shared_ptr<Message> m, int r, const CommCall& k)
        : group(std::move(g)), message(std::move(m)), rank(r), call(k) {}
    void wait() override {
      group->wait(*message, rank, call);
      if (memory.device) memory.link->wait(*memory.device, message->done_on_device);
    }
    void abandon() noexcept override { group->abandon(*message); }
    Pending::Span work() const override { return message->span; }
    std::shared_ptr<ThreadGroup> group;
    std::shared_ptr<Message> message;
    int rank;
    CommCall call;
    DeviceMemory memory{};
  };

  Pending collective(const CommCall& call, const void* in, void* out) {
    Collective::Part part;
    part.in = static_cast<const char*>(in);
    part.out = static_cast<char*>(out);
    if (call.op != CommOp::barrier && memory().device) {
      part.memory = memory();
      part.ready = part.memory.link->record(*part.memory.device);
    }
    const DeviceMemory of_buffers = part.memory;
    auto c = group_->post(rank(), call, std::move(part));
    auto state = std::make_unique<CollectiveState>(group_, std::move(c), rank(), call);
    state->memory = of_buffers;
    return Pending(std::move(state));
  }
  Pending message(bool is_send, const CommCall& call, const Tensor& buffer, int peer) {
    auto m = group_->post(is_send, rank(), peer, call, buffer.raw(), memory());
    if (!m) return {};
    auto state = std::make_unique<MessageState>(group_, std::move(m), rank(), call);
    state->memory = memory();
    return Pending(std::move(state));
  }

  Pending do_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp) override {
    return collective(call, in.raw(), out.raw());
  }
  Pending do_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) override {
    return collective(call, in.raw(), out.raw());
  }
  Pending do_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp) override {
    return collective(call, in.raw(), out.raw());
  }
  Pending do_broadcast(const CommCall& call, const Tensor& inout, int) override {
    return collective(call, inout.raw(), inout.raw());
  }
  Pending do_send(const CommCall& call, const Tensor& in, int to) override {
    return message(true, call, in, to);
  }
  Pending do_recv(const CommCall& call, const Tensor& out, int from) override {
    return message(false, call, out, from);
  }
  void do_barrier(const CommCall& call) override { collective(call, nullptr, nullptr).wait(); }

  std::unique_ptr<Communicator> do_split(const CommCall& call, int color, std::string name) override {
    Collective::Part part;
    part.color = color;
    part.group_name = std::move(name);
    const auto c = group_->post(rank(), call, std::move(part));
    CollectiveState(group_, c, rank(), call).wait();
    Collective::Part& mine = c->parts[rank()];
    if (!mine.group) return nullptr;
    auto group = std::make_unique<ThreadCommunicator>(std::move(mine.group), mine.group_rank, recorder_);
    if (group->size() == 1) return make_alone(*group, {});
    return group;
  }

  DeviceMemory memory() const { return takes_host_tensors() ? DeviceMemory{} : memory_; }
  bool use_device(const DeviceMemory& memory) override {
    if (!memory.link) return false;
    memory_ = memory;
    return true;
  }

  std::shared_ptr<ThreadGroup> group_;
  DeviceMemory memory_{};  // where tensors lie; without a device: on the host
};

}  // namespace

struct ThreadWorld::Impl {
  std::shared_ptr<ThreadWorldState> state = std::make_shared<ThreadWorldState>();
  std::shared_ptr<ThreadGroup> group;
};

ThreadWorld::ThreadWorld(int size, const CommOptions& options) : impl_(std::make_shared<Impl>()) {
  check(size > 0, "a world of {} ranks; it must have at least 1", size);
  impl_->state->options = options;
  std::vector<int> members;
  for (int r = 0; r < size; ++r) {
    members.push_back(r);
    impl_->state->recorders.push_back(std::make_shared<Recorder>());
  }
  impl_->group = std::make_shared<ThreadGroup>(impl_->state, "world", std::move(members));
  impl_->state->groups.push_back(impl_->group);
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::communicator(int rank) {
  check(rank >= 0 && rank < impl_->group->size(), "there is no rank {} in a world of {}", rank,
        impl_->group->size());
  return std::make_unique<ThreadCommunicator>(impl_->group, rank, impl_->state->recorders[rank]);
}

void ThreadWorld::abort(const std::string& cause) {
  ThreadWorldState& state = *impl_->state;
  std::vector<std::shared_ptr<ThreadGroup>> groups;
  {
    std::lock_guard lock(state.mutex);
    if (state.aborted) return;  // the first cause counts
    state.cause = cause;
    state.aborted = true;
    for (const auto& weak : state.groups)
      if (auto group = weak.lock()) groups.push_back(std::move(group));
  }
  for (const auto& group : groups) group->wake();
}

}  // namespace triax
