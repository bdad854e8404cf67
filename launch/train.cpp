#include "engine/train.h"

#include "engine/job.h"
#include "engine/startup.h"
#include "launch/commands.h"
#include "launch/on_ranks.h"
#include "parallel/backend.h"

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
  const auto started = launcher_start();
  RunConfig config;
  const auto load = [&](int launched) {
    config = load_job(options.job.files, options.job.sets, {launched, options.job.ranks});
    if (config.training.cuda_graph == "on") check_captures(config.training.device);
    return config;
  };
  return run_on_ranks("saving after this step", load, [&](Communicator& world, const RankStart& start) {
    const TrainRequest request{options.accept_changes, options.quiet, start.mpi, options.verbose, started,
                               start.watchdog,         start.crash};
    return status_of(run_rank(config, world, start.local_rank, start.local_size, start.stop, request));
  });
}

}  // namespace triax
