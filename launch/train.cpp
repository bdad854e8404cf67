#include "engine/train.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "checkpoint/agree.h"
#include "checkpoint/manifest.h"
#include "comm/local_ranks.h"
#include "engine/cluster.h"
#include "engine/job.h"
#include "launch/commands.h"
#include "launch/signals.h"

namespace triax {

namespace {

int status_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      return exit_done;
    case Outcome::interrupted:
      return exit_interrupted;
    case Outcome::stopped:
      return exit_stopped;
  }
  return exit_fault;
}

int status_of(const Error& error) {
  const auto* agreed = dynamic_cast<const AgreedError*>(&error);
  return (agreed ? agreed->cause() : error.kind()) == ErrorKind::usage ? exit_usage : exit_fault;
}

// The place in the program is for faults; who wrote a wrong job needs none.
std::string told(const Error& error) {
  return error.kind() == ErrorKind::usage ? error.what() : fmt::format("{}: {}", error.place(), error.what());
}

// With the rank: this one, unless the error quotes those that failed.
std::string told(const Error& error, int rank) {
  const bool quotes = error.kind() == ErrorKind::aborted && (dynamic_cast<const AgreedError*>(&error) ||
                                                             dynamic_cast<const DamagedCheckpoint*>(&error));
  return quotes ? error.what() : fmt::format("rank {}: {}", rank, told(error));
}

void print_error(const std::string& text) {
  std::fflush(stdout);
  std::fputs(fmt::format("triax: error: {}\n", text).c_str(), stderr);
}

// What all processes find wrong is told by rank 0, whose end makes the launcher send SIGTERM to the others;
// what only one of them finds is told by that one after a while.
bool rank_0_speaks(int rank, const StopFlag& stop) {
  if (rank == 0) return false;
  for (int i = 0; i < 100 && stop.signal.load() != SIGTERM; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return stop.signal.load() == SIGTERM;
}

// Ranks of a host are adjacent, so this rank's tensor group lies on its host when it lies among them.
void check_nodes(const RunConfig& config, int rank, int local_rank, int local_size) {
  const int tensor = config.parallel.tensor, first = rank - rank % tensor, host = rank - local_rank;
  if (config.parallel.allow_tensor_across_nodes || (first >= host && first + tensor <= host + local_size))
    return;
  fail_usage(
      "parallel.tensor: {}: the tensor group of ranks {} .. {} is spread over several nodes ({} ranks on "
      "this one); tensor can be {}, or set parallel.allow_tensor_across_nodes: true",
      tensor, first, first + tensor - 1, local_size, tensor_sizes_within(config, local_size));
}

int train_threads(const RunConfig& config, const StopFlag& stop, const CommOptions& comm,
                  const TrainRequest& request) {
  const int size = world_size(config);
  Outcome outcome = Outcome::finished;
  try {
    run_local_ranks(size, comm, [&](Communicator& world, int rank) {
      try {
        const Outcome mine = run_rank(config, world, rank, size, stop, request);
        if (rank == 0) outcome = mine;  // the ranks agree
      } catch (const Error& error) {
        throw Error(error.kind(), told(error), error.location());
      }
    });
  } catch (const Error& error) {
    print_error(error.what());
    return status_of(error);
  }
  return status_of(outcome);
}

int train_mpi(const RunConfig& config, const StopFlag& stop, const CommOptions& comm,
              const TrainRequest& request) {
  const std::unique_ptr<MpiWorld> mpi = make_mpi_world(comm);
  const std::unique_ptr<Communicator> world = mpi->communicator();
  int status = exit_fault;
  try {
    check_nodes(config, world->rank(), mpi->local_rank(), mpi->local_size());
    return status_of(run_rank(config, *world, mpi->local_rank(), mpi->local_size(), stop, request));
  } catch (const Error& error) {
    if (!rank_0_speaks(world->rank(), stop)) print_error(told(error, world->rank()));
    status = status_of(error);
  } catch (const std::exception& error) {
    print_error(fmt::format("rank {}: {}", world->rank(), error.what()));
  }
  mpi->abort(status);
  return status;
}

}  // namespace

int train(const TrainOptions& options) {
  // A console that goes away is no reason to lose a run.
  std::signal(SIGPIPE, SIG_IGN);
  StopFlag stop;
  SignalWatch watch(stop);
  int rank = 0, launched = 0;
  const bool mpi = started_by_mpi(&rank, &launched);
  RunConfig config;
  try {
    config = load_job(options.job.files, options.job.sets, {mpi ? launched : 0, options.job.ranks});
  } catch (const Error&) {
    if (rank_0_speaks(rank, stop)) return exit_usage;
    throw;
  }
  CommOptions comm;
  comm.check_order = config.debug.check_collectives;
  const TrainRequest request{options.accept_changes, options.quiet, mpi};
  return mpi ? train_mpi(config, stop, comm, request) : train_threads(config, stop, comm, request);
}

}  // namespace triax
