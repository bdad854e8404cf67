#pragma once

#include <CLI/CLI.hpp>

#include "launch/cli.h"
#include "launch/launch_command.h"
#include "launch/slurm.h"

namespace triax {

/// What `triax launch` is told.
struct LaunchOptions {
  JobArguments job;
  bool accept_changes = false, quiet = false, verbose = false;
  std::string hosts, hostfile;
  StartOptions start;
  bool dry_run = false;
  int max_restarts = 0;
  double backoff = 1;  ///< seconds before the first restart
  bool elastic = false;
  double host_patience = 30;  ///< seconds that a host may not answer before it counts as lost
  bool submit = false;        ///< --slurm
  SlurmOptions slurm;
  bool requeue = false;  ///< after a stop by SIGUSR1: what the batch script asks for
};

/// Starts a job's ranks through mpirun or srun, and again when they fail. Returns the exit status of the job;
/// throws Error(usage) for a bad job or hosts.
int launch(const LaunchOptions& options);

/// The command `triax launch`.
void add_launch(CLI::App& app, const Choose& choose);

}  // namespace triax
