#include "core/process.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

namespace triax {
namespace {

uint64_t own_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

struct Stat {
  char state;
  uint64_t started;
};

// proc(5): the name in parentheses may hold anything; state is the field after it, start time the 22nd.
std::optional<Stat> read_stat(int64_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(in, text)) return std::nullopt;
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  Stat result{};
  std::string skipped;
  fields >> result.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> result.started;
  if (!fields) return std::nullopt;
  return result;
}

}  // namespace

ProcessId own_process() {
  const int64_t pid = getpid();
  const auto stat = read_stat(pid);
  return {pid, stat ? stat->started : 0, own_namespace()};
}

namespace {

constexpr char unknown = '?';

char state_letter(const ProcessId& process) {
  if (process.pid == 0 || process.started == 0 || process.pid_namespace != own_namespace()) return unknown;
  const auto stat = read_stat(process.pid);
  return stat && stat->started == process.started ? stat->state : 'X';
}

}  // namespace

std::string state_of(const ProcessId& process) {
  switch (state_letter(process)) {
    case unknown:
      return "";
    case 'T':
    case 't':
      return "is stopped (SIGSTOP, or a debugger)";
    case 'Z':
    case 'X':
      return "has ended";
    case 'D':
      return "is waiting for a disk or a network file system";
    case 'R':
      return "is running";
    default:
      return "is asleep";
  }
}

bool is_stopped(const ProcessId& process) noexcept {
  try {
    const char state = state_letter(process);
    return state == 'T' || state == 't';
  } catch (...) {  // out of memory
    return false;
  }
}

void kill_process(const ProcessId& process) noexcept {
  try {
    const char state = state_letter(process);
    if (process.pid != getpid() && state != unknown && state != 'X' && state != 'Z')
      kill(static_cast<pid_t>(process.pid), SIGKILL);
  } catch (...) {  // out of memory: the launcher has to do it
  }
}

}  // namespace triax
