#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace triax {

/// How one start of a job ended.
struct Attempt {
  int status = 0;           ///< exit status of the launched command; 128 + signal when one killed it
  int stop_signal = 0;      ///< SIGTERM, SIGUSR1 or SIGINT when this launcher was asked to stop; else 0
  bool at_once = false;     ///< asked a second time
  int64_t checkpoint = -1;  ///< step of the newest complete checkpoint after it; -1: none
};

/// What to do after an attempt.
struct Decision {
  bool restart = false;
  int status = 0;                  ///< of the launcher when it does not restart
  std::chrono::milliseconds wait;  ///< before the restart
  std::string reason;              ///< in words, for the operator; empty when the job is simply done
};

/// Whether a failed job is started again: while failures without progress number at most `max_restarts`. A
/// newer complete checkpoint than before is progress: it forgives the failures before it. Waiting times
/// double from `backoff`, up to five minutes. Bad usage and stops on request are no failures and are passed
/// on. A value without clocks or processes.
class RestartPolicy {
 public:
  /// `checkpoint`: step of the newest complete one before the first start; -1: none.
  RestartPolicy(int max_restarts, std::chrono::milliseconds backoff, int64_t checkpoint)
      : max_restarts_(max_restarts), backoff_(backoff), newest_(checkpoint) {}

  Decision after(const Attempt& attempt);
  /// Failures since the last progress.
  int failures() const { return failures_; }

 private:
  int max_restarts_;
  std::chrono::milliseconds backoff_;
  int64_t newest_;
  int failures_ = 0;
};

/// The launcher's exit status for that of the ranks: 0, 2, 75 and 130 as they are, everything else a fault; a
/// stop that came by SIGINT is 130.
int launcher_status(const Attempt& attempt);
/// Status of a command that could not be started, as a shell's: mpirun is not there, and will not be.
inline constexpr int exit_no_program = 127;

}  // namespace triax
