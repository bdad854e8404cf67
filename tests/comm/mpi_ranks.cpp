// One rank of an MPI job: the suite of the other backends, and failures. Started by mpirun from ctest.
#include <fmt/core.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
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

// Messages longer than what may be under way between two ranks, both ways, beside a collective that all wait
// for first.
void long_messages(Communicator& world) {
  constexpr int64_t count = 5'000'001;  // 20 MB
  const int next = (world.rank() + 1) % world.size(), last = (world.rank() + world.size() - 1) % world.size();
  if (next == world.rank()) return;
  std::vector<int32_t> out = exercise::inputs<int32_t>(9, world.rank(), count);
  std::vector<int32_t> back = exercise::inputs<int32_t>(8, world.rank(), count);
  std::vector<int32_t> in(out.size()), other(out.size());
  Pending sent = world.send(exercise::view(out), next), sent_back = world.send(exercise::view(back), last);
  exercise::all_reduce<float>(world, 100000, ReduceOp::sum, true, 5);
  // Of two ranks both come from one: in the order in which they were sent.
  Pending received = world.recv(exercise::view(in), last);
  Pending received_back = world.recv(exercise::view(other), next);
  received_back.wait();
  received.wait();
  expect(in == exercise::inputs<int32_t>(9, last, count), "a long message is as it was sent");
  expect(other == exercise::inputs<int32_t>(8, next, count), "a long message back is as it was sent");
}

void suite(MpiWorld& mpi, Communicator& world) {
  expect(mpi.local_size() == world.size() && mpi.local_rank() == world.rank(), "all ranks are on this host");
  exercise::all_dtypes(world);
  exercise::any_order_of_waits(world);
  exercise::messages(world);
  exercise::groups(world);
  exercise::large(world);
  long_messages(world);
  ledger(world);
  world.barrier();
}

double processor_seconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Whoever waits leaves the processor to the others.
void idle(Communicator& world) {
  std::vector<float> x(1000);
  const auto group = world.split(world.rank() / 2, "pair");
  for (int kind = 0; kind < 3; ++kind) {
    world.barrier();
    if (world.rank() == 0) std::this_thread::sleep_for(600ms);
    const double before = processor_seconds();
    if (kind == 0) world.barrier();
    if (kind == 1) world.all_reduce(exercise::view(x), exercise::view(x), ReduceOp::sum).wait();
    if (kind == 2 && world.rank() == 0)
      for (int peer = 1; peer < world.size(); ++peer) world.send(exercise::view(x), peer).wait();
    if (kind == 2 && world.rank() > 0) world.recv(exercise::view(x), 0).wait();
    const double used = processor_seconds() - before;
    if (world.rank() > 0 && used > 0.05) fail("waiting took {} s of processor time in case {}", used, kind);
  }
}

// Short operations in an order that all ranks draw alike, waited for in an order that each draws for itself.
// A rank that sleeps through what it waits for would look again after 100 ms.
void bells(Communicator& world) {
  std::mt19937 common(7), own(100 + static_cast<unsigned>(world.rank()));
  const auto pair = world.split(world.rank() / 2, "pair"), stride = world.split(world.rank() % 2, "stride");
  int slow = 0;
  std::vector<std::vector<int32_t>> data(4, std::vector<int32_t>(16));
  for (int round = 0; round < 3000; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<Pending> pending;
    for (std::vector<int32_t>& x : data) {
      const Tensor view = exercise::view(x);
      std::fill(x.begin(), x.end(), 1);
      Communicator& group = *std::vector{&world, pair.get(), stride.get()}[common() % 3];
      if (common() % 3 == 0) {
        pending.push_back(group.all_reduce(view, view, ReduceOp::sum));
      } else if (group.rank() % 2 == 0 && group.rank() + 1 < group.size()) {
        pending.push_back(group.send(view, group.rank() + 1));
      } else if (group.rank() % 2 == 1) {
        pending.push_back(group.recv(view, group.rank() - 1));
      }
    }
    std::shuffle(pending.begin(), pending.end(), own);
    for (Pending& p : pending) p.wait();
    if (std::chrono::steady_clock::now() - start > 90ms) ++slow;
  }
  // Something else may hold up the machine now and then.
  if (slow > 15) fail("{} of 3000 rounds took more than 90 ms: ranks sleep through what they wait for", slow);
}

void size_differs(Communicator& world) {
  std::vector<float> x(8), y(9);
  if (world.rank() == 0) world.send(exercise::view(x), 1).wait();
  if (world.rank() == 1) world.recv(exercise::view(y), 0).wait();
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
  // MODE[,messages][,checked]
  const std::string words = argc > 1 ? argv[1] : "suite", mode = words.substr(0, words.find(','));
  CommOptions options;
  options.timeout = mode == "time-out" ? 1s : 60s;
  options.check_order = words.find(",checked") != std::string::npos;
  options.host_memory = words.find(",messages") == std::string::npos;
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
    else if (mode == "idle")
      idle(*world);
    else if (mode == "bells")
      bells(*world);
    else if (mode == "size")
      size_differs(*world);
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
