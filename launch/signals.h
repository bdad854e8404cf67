#pragma once

#include <csignal>
#include <string>
#include <thread>

#include "engine/train.h"

namespace triax {

/// Turns SIGINT, SIGTERM and SIGUSR1 into the stop request that ranks poll, and SIGUSR2 into one to save and
/// go on. Make it before any other thread, so that all threads inherit the blocked signals and a thread of
/// this object alone receives them. A second SIGINT ends the process at once with status 130.
class SignalWatch {
 public:
  /// `interrupted`: what the console is told about the first SIGINT.
  explicit SignalWatch(StopFlag& flag, std::string interrupted = "saving after this step");
  ~SignalWatch();  ///< puts the signals back; after a request to stop they are ignored instead
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void watch();

  StopFlag& flag_;
  std::string interrupted_;
  sigset_t signals_, before_;
  int signal_file_ = -1, end_file_ = -1;
  std::thread thread_;
};

}  // namespace triax
