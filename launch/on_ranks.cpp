#include "launch/on_ranks.h"

#include <csignal>
#include <cstdio>
#include <thread>

#include "checkpoint/agree.h"
#include "checkpoint/manifest.h"
#include "comm/local_ranks.h"
#include "core/terminal.h"
#include "engine/cluster.h"
#include "engine/job.h"
#include "launch/commands.h"

namespace triax {

namespace {

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
  std::fputs(fmt::format("{} {}\n", inked(stderr, Ink::red, "triax: error:"), text).c_str(), stderr);
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

CommOptions comm_options(const RunConfig& config) {
  CommOptions comm;
  comm.check_order = config.debug.check_collectives;
  return comm;
}

int on_threads(const RunConfig& config, const RankBody& body) {
  const int size = world_size(config);
  int status = exit_done;
  try {
    run_local_ranks(size, comm_options(config), [&](Communicator& world, int rank) {
      try {
        const int mine = body(world, rank, size);
        if (rank == 0) status = mine;  // the ranks agree
      } catch (const Error& error) {
        throw Error(error.kind(), told(error), error.location());
      }
    });
  } catch (const Error& error) {
    print_error(error.what());
    return status_of(error);
  }
  return status;
}

int on_mpi(const RunConfig& config, const StopFlag& stop, const RankBody& body) {
  const std::unique_ptr<MpiWorld> mpi = make_mpi_world(comm_options(config));
  const std::unique_ptr<Communicator> world = mpi->communicator();
  int status = exit_fault;
  try {
    check_nodes(config, world->rank(), mpi->local_rank(), mpi->local_size());
    return body(*world, mpi->local_rank(), mpi->local_size());
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

// Rank 0's end makes the launcher send SIGTERM to the others; what only one of them finds is told by that one
// after a while.
bool rank_0_speaks(int rank, const StopFlag& stop) {
  if (rank == 0) return false;
  for (int i = 0; i < 100 && stop.signal.load() != SIGTERM; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return stop.signal.load() == SIGTERM;
}

int on_ranks(const RunConfig& config, bool mpi, const StopFlag& stop, const RankBody& body) {
  return mpi ? on_mpi(config, stop, body) : on_threads(config, body);
}

}  // namespace triax
