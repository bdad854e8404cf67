#pragma once

#include <string>
#include <vector>

namespace triax {

/// Exit statuses of every command.
enum ExitStatus {
  exit_done = 0,
  exit_fault = 1,         ///< a fault while running
  exit_usage = 2,         ///< bad usage or configuration
  exit_stopped = 75,      ///< SIGTERM, SIGUSR1 or stop_after_minutes; a checkpoint was saved
  exit_interrupted = 130  ///< SIGINT, a checkpoint was saved (twice: at once, nothing was saved)
};

/// Job files and what the command line says over them.
struct JobArguments {
  std::vector<std::string> files;
  std::vector<std::string> sets;
  int ranks = 0;  ///< 0: not given
};

/// What `triax plan` is told about schedules.
struct ScheduleOptions {
  std::string name;                                       ///< of a schedule without a job; empty: the job's
  int stages = 0, micro_batches = 0, virtual_stages = 0;  ///< 0: not told
  std::string times;  ///< "F,B,W" or "F,B,W,C" in milliseconds; empty: not told
  std::string svg;    ///< file for the picture
  std::string trace;  ///< folder of a measured step to be drawn beside it
};

struct TrainOptions {
  JobArguments job;
  bool accept_changes = false;
  bool quiet = false, verbose = false;
};

/// Runs a job; ranks are threads of this process, or this process is one of MPI's. Faults of ranks are
/// printed here, because only here their rank is known. Returns the exit status; throws Error(usage) for a
/// bad job.
int train(const TrainOptions& options);

struct PlanOptions {
  JobArguments job;
  ScheduleOptions schedule;
  bool json = false;
  std::string device;    ///< a name or a number of GiB: does it fit, and up to which micro-batch
  std::string cluster;   ///< file that describes the cluster
  bool search = false;   ///< list the grids that fit instead of planning the job's
  bool largest = false;  ///< also the largest model of the job's family that fits
};

/// Prints what a job would use: grid, memory per rank, bytes per step, schedule; or what a schedule without a
/// job would. Runs nothing.
int plan(const PlanOptions& options);

/// Trains the job, shrunk, on its grid and on one rank, ranks as threads of this process, and prints what
/// agrees and what does not. exit_done only if all does, else exit_fault.
int verify(const JobArguments& job);

/// Prints the versions of the program and what it finds here.
int version();

}  // namespace triax
