#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace triax {

struct CheckpointBenchOptions {
  std::string dir = ".";  ///< a folder on the disk that is measured; a subfolder of it comes and goes
  int64_t bytes = int64_t{1} << 30;  ///< of the state that is written and read
  int ranks = 0;                     ///< threads that write and read it; 0: the cores
  int repeats = 3;
  bool json = false;
};

/// `triax bench checkpoint`. First the disk: a state is saved and loaded again, cold, beside plain write(2)
/// with fsync and plain read(2), cold, of as many bytes in one file by one thread, in turns; the best of each
/// counts. Then what a save in the background costs the training of a model (23 M parameters, one rank)
/// beside its writer's processor time and the copy of the state; the median of the repeats counts.
void bench_checkpoint(std::ostream& out, const CheckpointBenchOptions& options);

}  // namespace triax
