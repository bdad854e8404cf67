#pragma once

#include <cstdint>
#include <string>

namespace triax {

/// A process of this machine, so that it is not mistaken for a later one with the same number.
struct ProcessId {
  int64_t pid = 0;             ///< 0: unknown
  uint64_t started = 0;        ///< ticks after the machine's start
  uint64_t pid_namespace = 0;  ///< in which the number counts
};

ProcessId own_process();

/// What the kernel tells about it: "is stopped (SIGSTOP, or a debugger)", "has ended", "is waiting for a disk
/// or network file system", "is running", "is asleep"; empty when it can't be told.
std::string state_of(const ProcessId& process);

/// Stopped by SIGSTOP or a debugger; false when it can't be told.
bool is_stopped(const ProcessId& process) noexcept;

/// SIGKILL, unless it is this process, has ended, or is not known for sure.
void kill_process(const ProcessId& process) noexcept;

}  // namespace triax
