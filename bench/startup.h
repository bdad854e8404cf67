#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace triax {

struct StartupOptions {
  std::vector<int> ranks;  ///< threads; empty: 1 to 64. Not for processes, whose number the launcher gives
  std::string beside;      ///< a file with what --json printed for other numbers of ranks; empty: none
  bool json = false;
};

/// What a phase of the start takes against the number of ranks.
struct StartupPhase {
  std::string name;
  std::vector<double> seconds;  ///< of the slowest rank, one for each number of ranks
  /// Least squares of seconds = fixed + per_rank * ranks, neither below zero.
  double fixed = 0, per_rank = 0;
  double at(double count) const { return fixed + per_rank * count; }
};

/// The fit of one phase. With one number of ranks all of it is fixed.
void fit(StartupPhase& phase, const std::vector<int>& ranks);

/// Starts a tiny job, up to the end of its first step, and prints what the phases of the start took, a line
/// fitted through each, and what would dominate at 10,000 ranks. The ranks are threads of this process, in
/// several numbers, one after the other; or, in a process of mpirun or srun, the launcher's processes, of
/// which there is one number: then `beside` has the others. Only with processes the launcher's and MPI's
/// start are part of it, and the output says so. Ranks that share cores also share the time of the work that
/// each does for itself: the fit is that of this machine.
void bench_startup(std::ostream& out, const StartupOptions& options);

}  // namespace triax
