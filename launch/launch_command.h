#pragma once

#include <string>
#include <vector>

#include "launch/placement.h"
#include "launch/topology.h"

namespace triax {

/// Whether and how ranks are bound to cores.
enum class BindChoice {
  automatic,  ///< to cores where each rank has one
  never,
};

/// What `triax launch` is told about starting ranks.
struct StartOptions {
  std::string mpirun = "mpirun", srun = "srun";
  std::string agent;                     ///< for mpirun to reach hosts with; empty: ssh
  std::string interfaces;                ///< networks for TCP: "eth0" or "10.0.0.0/16"; empty: MPI's choice
  std::vector<std::string> mca;          ///< "KEY VALUE" or "KEY=VALUE", for Open MPI
  std::vector<std::string> mpirun_args;  ///< as they are, before the program
  std::vector<std::string> srun_args;
  BindChoice bind = BindChoice::automatic;
};

/// What each rank runs.
struct RankProgram {
  std::string program;                 ///< absolute path of triax
  std::vector<std::string> arguments;  ///< of `triax train`, without what the launcher adds
  bool threads_told = false;           ///< the job says training.threads itself
};

/// A command: environment over this process's, then the words of the line.
struct LaunchCommand {
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  std::vector<std::string> words;
};

/// The line as a shell would take it.
std::string to_shell(const LaunchCommand& command);

/// Compute threads that each rank gets: the cores of a host divided by the ranks of the fullest one.
Binding binding_of(const StartOptions& options, const RankPlacement& placement, const NodeTopology& node);

/// Starts the ranks with Open MPI's mpirun: hosts with exactly the ranks of the placement, in their order; a
/// host that does not answer any more is noticed within lost_host_seconds.
LaunchCommand mpirun_command(const StartOptions& options, const RankPlacement& placement,
                             const NodeTopology& node, const RankProgram& program);

/// Starts them as a step of the Slurm allocation that this process is in. `host_file` is where the ranks'
/// hosts are written, one per line, when hosts have different numbers of ranks (host_of_each_rank()).
LaunchCommand srun_command(const StartOptions& options, const RankPlacement& placement,
                           const NodeTopology& node, const RankProgram& program,
                           const std::string& host_file);

/// A line per rank with the name of its host.
std::string host_of_each_rank(const RankPlacement& placement);

/// After so many seconds of silence mpirun takes a host for lost and ends the job.
inline constexpr int lost_host_seconds = 5;

}  // namespace triax
