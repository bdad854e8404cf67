#include "engine/train.h"

#include <csignal>

#include "engine/job.h"
#include "engine/startup.h"
#include "launch/commands.h"
#include "launch/on_ranks.h"
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

}  // namespace

int train(const TrainOptions& options) {
  // A console that goes away is no reason to lose a run.
  std::signal(SIGPIPE, SIG_IGN);
  const auto started = process_start();
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
  return on_ranks(
      config, mpi, stop, [&](Communicator& world, int local_rank, int local_size, const RankGuards& guards) {
        const TrainRequest request{options.accept_changes, options.quiet, mpi, options.verbose, started,
                                   guards.watchdog,        guards.crash};
        return status_of(run_rank(config, world, local_rank, local_size, stop, request));
      });
}

}  // namespace triax
