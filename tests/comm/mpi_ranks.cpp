// One rank of an MPI job: the suite of the other backends, and failures. Started by mpirun from ctest.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "support/comm_exercise.h"

namespace triax {
namespace {

using namespace std::chrono_literals;

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void ledger(Communicator& world) {
  const auto group = world.split(0, "ledger");
  std::vector<float> x(10);
  group->all_reduce(exercise::view(x), exercise::view(x), ReduceOp::sum).wait();
  const double n = group->size();
  const auto& entry = group->recorder().ledger().at({"ledger", CommOp::all_reduce});
  expect(entry.calls == 1 && std::abs(entry.bytes - 2 * (n - 1) / n * 40) < 1e-9, "the ledger's bytes");
}

void suite(MpiWorld& mpi, Communicator& world) {
  expect(mpi.local_size() == world.size() && mpi.local_rank() == world.rank(), "all ranks are on this host");
  exercise::all_dtypes(world);
  exercise::any_order_of_waits(world);
  exercise::messages(world);
  exercise::groups(world);
  exercise::large(world);
  ledger(world);
  world.barrier();
}

void time_out(Communicator& world) {
  const auto group = world.split(world.rank() == 2 ? -1 : 0, "tp");
  if (world.rank() == 0) group->barrier();
  std::this_thread::sleep_for(8s);
}

void order(Communicator& world) {
  std::vector<float> x(world.rank() == 2 ? 9 : 8);
  world.all_reduce(exercise::view(x), exercise::view(x), ReduceOp::sum).wait();
}

void abort(Communicator& world) {
  std::vector<float> x(1000);
  if (world.rank() == 2) {
    const Pending pending = world.recv(exercise::view(x), 0);
    fail("out of paper");
  }
  world.barrier();
}

}  // namespace
}  // namespace triax

int main(int argc, char** argv) {
  using namespace triax;
  const std::string mode = argc > 1 ? argv[1] : "suite";
  CommOptions options;
  options.timeout = mode == "time-out" ? 1s : 60s;
  options.check_order = mode == "order" || mode == "suite-checked";
  int rank = -1, size = -1;
  std::unique_ptr<MpiWorld> mpi;
  try {
    expect(started_by_mpi(&rank, &size), "mpirun is not recognised");
    mpi = make_mpi_world(options);
    const auto world = mpi->communicator();
    expect(world->rank() == rank && world->size() == size, "the launcher's rank and size are not MPI's");
    if (mode == "time-out")
      time_out(*world);
    else if (mode == "order")
      order(*world);
    else if (mode == "abort")
      abort(*world);
    else
      suite(*mpi, *world);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (!known || known->kind() != ErrorKind::aborted)
      fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    if (mpi) mpi->abort(1);
    return 1;
  }
}
