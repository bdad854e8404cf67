#include <cstring>

#include "comm/communicator.h"

namespace triax {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, std::shared_ptr<Recorder> recorder)
      : Communicator(0, {std::move(name), 1, {0}}, std::move(recorder)) {}

 private:
  static Pending copy(const Tensor& in, const Tensor& out) {
    if (in.raw() != out.raw() && in.bytes()) std::memcpy(out.raw(), in.raw(), in.bytes());
    return {};
  }
  Pending do_all_reduce(const CommCall&, const Tensor& in, const Tensor& out, ReduceOp) override {
    return copy(in, out);
  }
  Pending do_all_gather(const CommCall&, const Tensor& in, const Tensor& out) override {
    return copy(in, out);
  }
  Pending do_reduce_scatter(const CommCall&, const Tensor& in, const Tensor& out, ReduceOp) override {
    return copy(in, out);
  }
  Pending do_broadcast(const CommCall&, const Tensor&, int) override { return {}; }
  // The front refuses messages to oneself, and there is nobody else.
  Pending do_send(const CommCall&, const Tensor&, int) override { return {}; }
  Pending do_recv(const CommCall&, const Tensor&, int) override { return {}; }
  void do_barrier(const CommCall&) override {}
  std::unique_ptr<Communicator> do_split(const CommCall&, int color, std::string name) override {
    if (color < 0) return nullptr;
    return std::make_unique<SelfCommunicator>(std::move(name), recorder_);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const CommOptions&) {
  return std::make_unique<SelfCommunicator>("world", std::make_shared<Recorder>());
}

}  // namespace triax
