#include "launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "launch/banners.h"
#include "launch/commands.h"
#include "launch/first_cause.h"

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A stop request may come before the ranks are there to hear it, so it is repeated.
constexpr milliseconds repeat_every{1000};
// Ranks that do not listen yet would die of SIGUSR2.
constexpr milliseconds time_to_listen{3000};

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::vector<char*> c_words(const std::vector<std::string>& words) {
  std::vector<char*> c;
  for (const std::string& word : words) c.push_back(const_cast<char*>(word.c_str()));
  c.push_back(nullptr);
  return c;
}

// Passes on what there is; false at the end of the pipe.
bool pass_on(int pipe, FirstCause& cause, Banners& banners, bool stopping) {
  std::array<char, 4096> buffer;
  const ssize_t n = read(pipe, buffer.data(), buffer.size());
  if (n <= 0) return n < 0 && (errno == EINTR || errno == EAGAIN);
  cause.add(buffer.data(), static_cast<size_t>(n));
  std::fputs(banners.pass(buffer.data(), static_cast<size_t>(n), stopping).c_str(), stderr);
  return true;
}

class Pipe {
 public:
  Pipe() { check(pipe2(ends_, O_CLOEXEC) == 0, "no pipe can be had: {}", std::strerror(errno)); }
  ~Pipe() {
    close(ends_[0]);
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace

Supervisor::Supervisor(EndAtOnce end) : end_(end) {
  sigemptyset(&signals_);
  for (int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&signals_, s);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal_file_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  // A console that goes away is no reason to lose a run.
  std::signal(SIGPIPE, SIG_IGN);
  check(signal_file_ >= 0, "signals can't be watched: {}", std::strerror(errno));
}

Supervisor::~Supervisor() {
  close(signal_file_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

pid_t Supervisor::start(const LaunchCommand& command, int error_pipe) const {
  const std::vector<char*> words = c_words(command.words);
  const pid_t parent = getpid(), child = fork();
  check(child >= 0, "no process can be started: {}", std::strerror(errno));
  if (child != 0) return child;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGUSR2, SIG_IGN);  // until mpirun listens; a save that is asked for is no reason to end
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, 0);  // in a group of its own it may not read the terminal
  dup2(error_pipe, 2);
  for (const std::string& variable : command.environment) putenv(const_cast<char*>(variable.c_str()));
  execvp(words[0], words.data());
  dprintf(2,
          "triax: error: %s can't be started: %s; install Open MPI (Debian: openmpi-bin), or name it with "
          "--mpirun\n",
          words[0], std::strerror(errno));
  _exit(exit_no_program);
}

void Supervisor::ask_to_stop(pid_t child) {
  if (!at_once_) {
    kill(child, SIGUSR1);
  } else if (end_ == EndAtOnce::mpirun) {
    kill(child, SIGTERM);
  } else {
    for (int i = 0; i < 3; ++i) {
      kill(child, SIGINT);
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
}

// Takes one signal that has come; `child` is 0 while none runs. False when there was none.
bool Supervisor::read_signal(pid_t child) {
  signalfd_siginfo info{};
  if (read(signal_file_, &info, sizeof info) != sizeof info) return false;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) {
    child_ended_ = true;
  } else if (signal == SIGUSR2) {
    save_asked_ = true;
  } else {
    at_once_ = at_once_ || (signal == SIGINT && stop_signal_ == SIGINT);
    if (signal == SIGINT)
      std::fputs(at_once_
                     ? "\ntriax launch: interrupted again: ending at once, without a checkpoint\n"
                     : "\ntriax launch: interrupted: the ranks save after this step (again: end at once)\n",
                 stderr);
    if (!stop_signal_ || signal == SIGINT) stop_signal_ = signal;
    if (child) ask_to_stop(child);
  }
  return true;
}

Supervised Supervisor::run(const LaunchCommand& command) {
  Pipe errors;
  FirstCause cause;
  Banners banners;
  std::fflush(nullptr);
  const pid_t child = start(command, errors.writer());
  errors.close_writer();
  int status = 0;
  const auto begun = Clock::now();
  auto asked = begun;
  bool open = true;
  for (;;) {
    pollfd files[] = {{signal_file_, POLLIN, 0}, {open ? errors.reader() : -1, POLLIN, 0}};
    poll(files, 2, static_cast<int>(repeat_every.count()));
    while (read_signal(child)) asked = Clock::now();
    if (files[1].revents) open = pass_on(errors.reader(), cause, banners, stop_signal_ != 0);
    if (waitpid(child, &status, WNOHANG) == child) break;
    if (save_asked_ && Clock::now() - begun >= time_to_listen) {
      kill(child, SIGUSR2);
      save_asked_ = false;
    }
    if (stop_signal_ && Clock::now() - asked >= repeat_every) {
      ask_to_stop(child);
      asked = Clock::now();
    }
  }
  // What it said last. A rank that outlives it would hold the pipe open, so nobody waits for its end.
  fcntl(errors.reader(), F_SETFL, O_NONBLOCK);
  for (pollfd file{errors.reader(), POLLIN, 0}; open && poll(&file, 1, 100) > 0;)
    open = pass_on(errors.reader(), cause, banners, stop_signal_ != 0);
  std::fputs(banners.rest().c_str(), stderr);
  std::fflush(stderr);
  Supervised result;
  result.attempt.status = status_of(status);
  if (result.attempt.status == 0 && !cause.started()) result.attempt.status = exit_fault;
  result.attempt.stop_signal = stop_signal_;
  result.attempt.at_once = at_once_;
  result.cause = cause.text();
  if (result.cause.empty() && WIFSIGNALED(status))
    result.cause = fmt::format("{} itself was ended by signal {} ({})", command.words[0], WTERMSIG(status),
                               strsignal(WTERMSIG(status)));
  return result;
}

bool Supervisor::wait(milliseconds time) {
  const auto end = Clock::now() + time;
  while (!stop_signal_) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (left.count() <= 0) return true;
    pollfd file{signal_file_, POLLIN, 0};
    poll(&file, 1, static_cast<int>(left.count()) + 1);
    while (read_signal(0)) {
    }
  }
  return false;
}

int Supervisor::quiet_status(const std::vector<std::string>& words, milliseconds limit) {
  const std::vector<char*> c = c_words(words);
  const pid_t child = fork();
  check(child >= 0, "no process can be started: {}", std::strerror(errno));
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int file : {0, 1, 2}) dup2(nothing, file);
    execvp(c[0], c.data());
    _exit(127);
  }
  const auto end = Clock::now() + limit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      return 124;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return status_of(status);
}

}  // namespace triax
