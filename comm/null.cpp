#include "comm/communicator.h"

namespace triax {
namespace {

class NullCommunicator final : public Communicator {
 public:
  NullCommunicator(int rank, int size, std::string name, std::shared_ptr<Recorder> recorder)
      : Communicator(rank, {std::move(name), size, {}}, std::move(recorder)) {}

 private:
  Pending do_all_reduce(const CommCall&, const Tensor&, const Tensor&, ReduceOp) override { return {}; }
  Pending do_all_gather(const CommCall&, const Tensor&, const Tensor&) override { return {}; }
  Pending do_reduce_scatter(const CommCall&, const Tensor&, const Tensor&, ReduceOp) override { return {}; }
  Pending do_broadcast(const CommCall&, const Tensor&, int) override { return {}; }
  Pending do_send(const CommCall&, const Tensor&, int) override { return {}; }
  Pending do_recv(const CommCall&, const Tensor&, int) override { return {}; }
  void do_barrier(const CommCall&) override {}
  bool use_device(const DeviceMemory&) override { return true; }
  std::unique_ptr<Communicator> do_split(const CommCall& call, int color, std::string name) override {
    if (color < 0) return nullptr;
    if (size() > 1)
      throw Error(
          ErrorKind::fault,
          fmt::format("split of group '{}' into '{}': a null communicator knows no other rank's color; "
                      "make the group with make_null_communicator(rank, size, options, name, recorder)",
                      this->name(), name),
          call.place);
    return std::make_unique<NullCommunicator>(0, 1, std::move(name), recorder_);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_null_communicator(int rank, int size, const CommOptions&, std::string name,
                                                     std::shared_ptr<Recorder> recorder) {
  return std::make_unique<NullCommunicator>(rank, size, std::move(name), std::move(recorder));
}

}  // namespace triax
