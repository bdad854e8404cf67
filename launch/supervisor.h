#pragma once

#include <chrono>
#include <csignal>
#include <string>

#include "launch/launch_command.h"
#include "launch/restart_policy.h"

namespace triax {

/// How the launched command is asked to end at once.
enum class EndAtOnce {
  mpirun,  ///< SIGTERM: it kills its ranks on all hosts after a second
  srun,    ///< SIGINT three times: it kills the step
};

/// How a supervised command ended.
struct Supervised {
  Attempt attempt;    ///< without its checkpoint
  std::string cause;  ///< first cause that ranks or their launcher told; empty: none
};

/// Runs one launched command after the other and stands between them and the signals of this process:
///
/// - SIGTERM and SIGUSR1, and the first SIGINT, become SIGUSR1 for the command, which mpirun and srun forward
///   to all ranks: they save and end. (mpirun itself would kill its ranks a second after SIGTERM or Ctrl-C.)
/// - SIGUSR2 is passed on: save and go on.
/// - a second SIGINT ends the command at once.
///
/// The command has a process group of its own, so that a terminal's Ctrl-C comes here alone, and gets SIGTERM
/// when this process dies, however. Make it before any other thread.
class Supervisor {
 public:
  explicit Supervisor(EndAtOnce end);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Runs it to its end. Its standard error is passed on and read for the first cause. A fault when it can't
  /// be started.
  Supervised run(const LaunchCommand& command);
  /// Waits; false when a signal that asks to stop has come, also before.
  bool wait(std::chrono::milliseconds time);
  /// The first signal that asked to stop, or 0.
  int stop_signal() const { return stop_signal_; }
  /// A command's exit status, its output thrown away; 124 when it took longer and was killed.
  static int quiet_status(const std::vector<std::string>& words, std::chrono::milliseconds limit);

 private:
  bool read_signal(pid_t child);
  void ask_to_stop(pid_t child);
  pid_t start(const LaunchCommand& command, int error_pipe) const;

  EndAtOnce end_;
  sigset_t signals_, before_;
  int signal_file_ = -1;
  int stop_signal_ = 0;
  bool at_once_ = false;
  bool save_asked_ = false;  // by SIGUSR2, and not passed on yet
  bool child_ended_ = false;
};

}  // namespace triax
