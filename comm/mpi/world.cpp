#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "comm/device_link.h"
#include "comm/mpi/engine.h"
#include "comm/mpi/operations.h"
#include "comm/over_host.h"

namespace triax {
namespace {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiGroup> group, std::shared_ptr<Recorder> recorder)
      : Communicator(group->rank, {group->name, group->size, group->world_ranks}, std::move(recorder)),
        group_(std::move(group)) {}

 private:
  struct State final : Pending::State {
    State(std::shared_ptr<MpiGroup> g, std::shared_ptr<Operation> o)
        : group(std::move(g)), operation(std::move(o)) {}
    void wait() override { group->engine->wait(*operation); }
    // MPI can't take a message back for sure. It touches buffers only while somebody calls it, and the engine
    // makes no call any more.
    void abandon() noexcept override {
      group->engine->abandon(fmt::format("an exception left {} in group '{}' unfinished",
                                         describe(operation->call()), group->name));
    }
    Pending::Span work() const override { return operation->span(); }
    std::shared_ptr<MpiGroup> group;
    std::shared_ptr<Operation> operation;
  };

  Pending start(std::shared_ptr<Operation> operation) {
    operation = group_->engine->start(std::move(operation));
    if (!operation) return {};
    return Pending(std::make_unique<State>(group_, std::move(operation)));
  }

  Pending do_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp) override {
    return start(make_all_reduce(group_, call, in, out));
  }
  Pending do_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) override {
    return start(make_all_gather(group_, call, in, out));
  }
  Pending do_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp) override {
    return start(make_reduce_scatter(group_, call, in, out));
  }
  Pending do_broadcast(const CommCall& call, const Tensor& inout, int) override {
    return start(make_broadcast(group_, call, inout));
  }
  Pending do_send(const CommCall& call, const Tensor& in, int) override {
    return start(make_send(group_, call, in));
  }
  Pending do_recv(const CommCall& call, const Tensor& out, int) override {
    return start(make_recv(group_, call, out));
  }
  void do_barrier(const CommCall& call) override { start(make_barrier(group_, call)).wait(); }

  std::unique_ptr<Communicator> do_split(const CommCall& call, int color, std::string name) override {
    // MPI_Comm_split waits without limit, so all must be here first.
    do_barrier(call);
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(group_->comm, color < 0 ? MPI_UNDEFINED : color, rank(), &comm),
              "MPI_Comm_split");
    if (comm == MPI_COMM_NULL) return nullptr;
    auto group = std::make_unique<MpiCommunicator>(
        std::make_shared<MpiGroup>(group_->engine, comm, std::move(name)), recorder_);
    if (group->size() == 1) return make_alone(*group, {});
    return group;
  }

  std::shared_ptr<MpiGroup> group_;
};

class World final : public MpiWorld {
 public:
  explicit World(const CommOptions& options) : recorder_(std::make_shared<Recorder>()) {
    // Without it Open MPI spins while it waits unless mpirun itself has seen that there are too few cores.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    int initialized = 0, provided = 0;
    MPI_Initialized(&initialized);
    if (!initialized) {
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
      check(provided >= MPI_THREAD_FUNNELED,
            "this MPI gives thread level {} where MPI_THREAD_FUNNELED is needed (the program has threads, "
            "one of "
            "which calls MPI)",
            provided);
    }
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_size();
    MPI_Comm host;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
    MPI_Comm_rank(host, &local_rank_);
    MPI_Comm_size(host, &local_size_);
    engine_ = std::make_shared<Engine>(options, host);
    MPI_Comm_free(&host);
  }

  ~World() override {
    // After a failure the peers will not come to a collective end; the launcher sees a process that ends
    // without one and stops them.
    if (engine_->failed() || std::uncaught_exceptions() > 0) return;
    engine_->board().free();
    MPI_Finalize();
  }

  std::unique_ptr<Communicator> communicator() override {
    MPI_Comm comm;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    return std::make_unique<MpiCommunicator>(std::make_shared<MpiGroup>(engine_, comm, "world"), recorder_);
  }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  std::string words_on(int rank) const override {
    const std::string process = engine_->board().process_words(rank);
    if (process.empty()) return engine_->board().whereabouts(rank);
    return fmt::format("{}; it {}", process, engine_->board().whereabouts(rank));
  }
  void kill_host(bool all) noexcept override { engine_->board().kill_others(all); }
  void abort(int status) override {
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  static void check_size() {
    int size = 0, launched = 0, rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (started_by_mpi(&rank, &launched) && launched != size)
      fail(
          "the launcher started {} processes, but MPI sees {}: the two do not belong together. Use the "
          "mpirun of "
          "the MPI that triax_mpi.so was built with, or with Slurm `srun --mpi=pmix` (`srun --mpi=list` "
          "shows "
          "what there is)",
          launched, size);
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Recorder> recorder_;
  int local_rank_ = 0, local_size_ = 1;
};

}  // namespace
}  // namespace triax

/// What comm/mpi_world.cpp looks for; the caller owns the result. Exceptions pass: both sides are built with
/// one compiler.
extern "C" __attribute__((visibility("default"))) triax::MpiWorld* triax_open_mpi_world(
    const triax::CommOptions* options) {
  return new triax::World(*options);
}
