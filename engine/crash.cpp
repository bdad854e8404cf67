#include "engine/crash.h"

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>

namespace triax {

namespace {

constexpr std::array fatal_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t handler_stack = 64 * 1024;

const char* name_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV (invalid memory access)";
    case SIGBUS:
      return "SIGBUS (memory that can't be had: a file that shrank, or broken memory)";
    case SIGFPE:
      return "SIGFPE (integer division by zero)";
    case SIGILL:
      return "SIGILL (an instruction that this processor does not have)";
    default:
      return "SIGABRT (abort)";
  }
}

/// A line in memory of its own: a handler may not allocate.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text && length_ < sizeof text_ - 1) text_[length_++] = *text++;
    return *this;
  }
  Line& operator<<(int64_t number) {
    char digits[24];
    size_t n = sizeof digits;
    digits[--n] = 0;
    uint64_t rest = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    do digits[--n] = static_cast<char>('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) digits[--n] = '-';
    return *this << digits + n;
  }
  void write_to(int file) const {
    if (write(file, text_, length_) < 0) return;  // nothing else can be done here
  }

 private:
  char text_[1024] = "";
  size_t length_ = 0;
};

// "room/file.cpp" of a path.
const char* short_name(const char* file) {
  const char *last = file, *before = file;
  for (const char* c = file; *c; ++c)
    if (*c == '/') before = last, last = c + 1;
  return before;
}

}  // namespace

struct CrashReport::Impl {
  struct Seat {
    std::atomic<const Recorder*> recorder{nullptr};
    char log[PATH_MAX] = "";
    std::vector<char> stack;
  };
  std::vector<Seat> seats;
  std::array<struct sigaction, fatal_signals.size()> before{};

  int only;

  Impl(int ranks, int only_rank) : seats(static_cast<size_t>(ranks)), only(only_rank) {}

  // A handler is told nothing but the signal: this is where it finds the rest.
  static std::atomic<Impl*>& current() {
    static std::atomic<Impl*> impl{nullptr};
    return impl;
  }
  static std::atomic<bool>& crashed() {
    static std::atomic<bool> flag{false};
    return flag;
  }

  // Of the thread that calls it; -1 when it belongs to no rank.
  int own_rank() const {
    if (only >= 0) return only;
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) != 0 || std::strncmp(name, "rank ", 5) != 0) return -1;
    int rank = 0;
    for (const char* c = name + 5; *c; ++c) {
      if (*c < '0' || *c > '9') return -1;
      rank = 10 * rank + (*c - '0');
    }
    return rank < static_cast<int>(seats.size()) ? rank : -1;
  }

  Line describe(int signal, int rank) const {
    Line line;
    const Recorder* recorder = rank < 0 ? nullptr : seats[static_cast<size_t>(rank)].recorder.load();
    if (rank < 0)
      line << "the process";
    else
      line << "rank " << int64_t{rank};
    line << " crashed";
    if (recorder) {
      const Position& at = recorder->position();
      if (const int64_t step = at.step) line << " in step " << step;
      if (const char* phase = at.phase) line << ", " << phase;
    }
    line << ": " << name_of_signal(signal);
    if (recorder) {
      const Position& at = recorder->position();
      if (const char* file = at.file)
        line << (at.inside_since ? "; inside of the operation at " : "; its last operation was that at ")
             << short_name(file) << ":" << int64_t{at.line.load()};
    }
    return line << "\n";
  }

  void tell(int signal) const {
    const int rank = own_rank();
    const Line line = describe(signal, rank);
    Line head;
    head << "triax: error: ";
    head.write_to(STDERR_FILENO);
    line.write_to(STDERR_FILENO);
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    if (rank < 0 || !seats[static_cast<size_t>(rank)].log[0]) return;
    const int log = open(seats[static_cast<size_t>(rank)].log, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (log >= 0) line.write_to(log);
  }

  static void handle(int signal) {
    // One tells; others that crash meanwhile (or the telling itself) leave it to that.
    if (crashed().exchange(true)) {
      sleep(5);
      _exit(128 + signal);
    }
    if (const Impl* impl = current().load()) impl->tell(signal);
    raise(signal);  // takes its usual course when this returns
  }
};

CrashReport::CrashReport(int ranks, int only) : impl_(std::make_unique<Impl>(ranks, only)) {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs now, not in a handler
  Impl::current() = impl_.get();
  for (size_t i = 0; i < fatal_signals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = &Impl::handle;
    action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
    sigaction(fatal_signals[i], &action, &impl_->before[i]);
  }
}

CrashReport::~CrashReport() {
  for (size_t i = 0; i < fatal_signals.size(); ++i) sigaction(fatal_signals[i], &impl_->before[i], nullptr);
  Impl::current() = nullptr;
}

void CrashReport::enter(int rank, const Recorder& recorder) {
  Impl::Seat& seat = impl_->seats[static_cast<size_t>(rank)];
  seat.recorder = &recorder;
  if (impl_->only < 0) pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
  seat.stack.resize(handler_stack);
  stack_t stack{};
  stack.ss_sp = seat.stack.data();
  stack.ss_size = seat.stack.size();
  sigaltstack(&stack, nullptr);
}

void CrashReport::leave(int rank) noexcept {
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  impl_->seats[static_cast<size_t>(rank)].recorder = nullptr;
}

void CrashReport::set_log(int rank, const std::string& path) {
  char* log = impl_->seats[static_cast<size_t>(rank)].log;
  if (path.size() < PATH_MAX) std::memcpy(log, path.c_str(), path.size() + 1);
}

}  // namespace triax
