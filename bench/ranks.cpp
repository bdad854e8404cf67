#include "bench/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <thread>

#include "comm/local_ranks.h"
#include "core/error.h"

namespace triax {

void run_bench_ranks(int ranks, const std::function<void(Communicator& world)>& body) {
  int rank = 0, launched = 0;
  if (!started_by_mpi(&rank, &launched)) {
    const int cores = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
    run_local_ranks(ranks ? ranks : cores, {}, [&](Communicator& world, int) { body(world); });
    return;
  }
  if (ranks && ranks != launched)
    fail_usage("--ranks {}, but the launcher started {} processes; leave --ranks out", ranks, launched);
  run_bench_processes([&](MpiWorld&, Communicator& world) { body(world); });
}

void run_bench_processes(const std::function<void(MpiWorld& mpi, Communicator& world)>& body) {
  const std::unique_ptr<MpiWorld> mpi = make_mpi_world({});
  const std::unique_ptr<Communicator> world = mpi->communicator();
  try {
    body(*mpi, *world);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("triax: error: rank {}: {}\n", world->rank(), error.what()).c_str(), stderr);
    const auto* known = dynamic_cast<const Error*>(&error);
    mpi->abort(known && known->kind() == ErrorKind::usage ? 2 : 1);
  }
}

double best_seconds_together(Communicator& group, double budget, const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  // The ranks decide together: what one measures alone must not make it leave the loop earlier.
  const auto longest = [&](double mine) {
    const int64_t nanoseconds = static_cast<int64_t>(mine * 1e9);
    int64_t all = 0;
    group.all_reduce(Tensor::of(&nanoseconds, Shape{1}), Tensor::of(&all, Shape{1}), ReduceOp::max).wait();
    return static_cast<double>(all) * 1e-9;
  };
  body();
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  int repeat = 1;  // short operations are timed by the batch: two clock readings would hide them
  for (int runs = 0; runs < 3 || spent < budget; ++runs) {
    group.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < repeat; ++i) body();
    const double seconds = longest(std::chrono::duration<double>(Clock::now() - begin).count());
    best = std::min(best, seconds / repeat);
    spent += seconds;
    if (seconds < 1e-3 && repeat < 1000) {
      repeat *= 4;
      runs = -1;
    }
  }
  return best;
}

}  // namespace triax
