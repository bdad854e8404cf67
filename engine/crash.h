#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "comm/recorder.h"

namespace triax {

/// Tells who crashed when a signal ends the process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT): rank, step,
/// the place of its last communication, and the stack, on standard error and, in a line, in the rank's log.
/// Then the signal takes its usual course: the process dies of it, with all ranks that are threads of it, and
/// a core file where the system makes them.
///
/// Where ranks are threads, a thread is known by its name ("rank 3"), which the threads that it starts
/// inherit. One object at a time; what it does in a handler is async-signal-safe but for the stack's names.
class CrashReport {
 public:
  /// `only`: the one rank of this process, whose threads need no names for it; -1: ranks are threads.
  explicit CrashReport(int ranks, int only = -1);
  ~CrashReport();  ///< puts the handlers back
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

  /// By the rank's own thread: names it where that is needed, and gives it a stack for the handler, which a
  /// stack overflow needs. Until leave(), which the same thread calls before the recorder goes.
  void enter(int rank, const Recorder& recorder);
  void leave(int rank) noexcept;  ///< see CrashSeat
  /// Where the rank's last line goes to.
  void set_log(int rank, const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A rank's place there, as long as this lives.
class CrashSeat {
 public:
  CrashSeat(CrashReport& crash, int rank, const Recorder& recorder) : crash_(crash), rank_(rank) {
    crash_.enter(rank, recorder);
  }
  ~CrashSeat() { crash_.leave(rank_); }
  CrashSeat(const CrashSeat&) = delete;
  CrashSeat& operator=(const CrashSeat&) = delete;

 private:
  CrashReport& crash_;
  int rank_;
};

}  // namespace triax
