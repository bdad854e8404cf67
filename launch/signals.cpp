#include "launch/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "launch/commands.h"

namespace triax {

// A thread that waits for the signals, instead of a handler: no state that a handler could reach is needed.
SignalWatch::SignalWatch(StopFlag& flag, std::string interrupted)
    : flag_(flag), interrupted_(std::move(interrupted)) {
  sigemptyset(&signals_);
  for (int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&signals_, s);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal_file_ = signalfd(-1, &signals_, SFD_CLOEXEC);
  end_file_ = eventfd(0, EFD_CLOEXEC);
  check(signal_file_ >= 0 && end_file_ >= 0, "signals can't be watched: {}", std::strerror(errno));
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  const uint64_t one = 1;
  if (write(end_file_, &one, sizeof one) == sizeof one) thread_.join();
  close(signal_file_);
  close(end_file_);
  // A launcher repeats its request until the process is gone; one that has been honoured must not kill now.
  if (flag_.signal.load() != 0)
    for (int s : {SIGTERM, SIGUSR1, SIGUSR2}) std::signal(s, SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::watch() {
  pollfd files[] = {{signal_file_, POLLIN, 0}, {end_file_, POLLIN, 0}};
  for (;;) {
    if (poll(files, 2, -1) < 0) continue;  // EINTR
    if (files[1].revents) return;
    signalfd_siginfo info{};
    if (read(signal_file_, &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGUSR2) {
      ++flag_.saves;
      continue;
    }
    if (signal == SIGINT && flag_.signal.load() == SIGINT) {
      std::fputs("\ntriax: interrupted again: ending at once, without a checkpoint\n", stderr);
      _exit(exit_interrupted);
    }
    flag_.signal.store(signal);
    if (signal == SIGINT)
      std::fputs(("\ntriax: interrupted: " + interrupted_ + " (again: end at once)\n").c_str(), stderr);
  }
}

}  // namespace triax
