#include "launch/first_cause.h"

namespace triax {

namespace {

bool has(const std::string& line, const char* text) {
  return line.find(text) != std::string::npos;
}

constexpr int most_error_lines = 12;

bool from_srun(const std::string& line) {
  return line.rfind("srun: error: ", 0) == 0;
}

// "mpirun noticed that process rank 3 with PID 0 on node h1 exited on signal 9 (Killed)."
// "srun: error: h1: task 3: Killed"
bool is_death(const std::string& line) {
  if (has(line, " noticed that process rank ")) return has(line, " exited on signal ");
  if (!from_srun(line) || !has(line, ": task")) return false;
  for (const char* how : {"Killed", "Segmentation", "Aborted", "Bus error", "Out Of Memory"})
    if (has(line, how)) return true;
  return false;
}

// "srun: error: task 0 launch failed: Unspecified error"
bool is_no_start(const std::string& line) {
  return from_srun(line) && has(line, " launch failed: ");
}

}  // namespace

void FirstCause::add(const char* text, size_t size) {
  rest_.append(text, size);
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
    line(rest_.substr(begin, end - begin));
  rest_.erase(0, begin);
}

void FirstCause::line(const std::string& line) {
  if (death_.empty() && (is_death(line) || is_no_start(line))) death_ = line;
  started_ = started_ && !is_no_start(line);
  // "ORTE has lost communication with a remote daemon." and, lines later, "Remote daemon: [[1,0],1] on node
  // h2"
  lost_host_ = lost_host_ || has(line, "has lost communication with a remote daemon");
  const size_t node = line.find(" on node ");
  if (host_.empty() && lost_host_ && has(line, "Remote daemon:") && node != std::string::npos)
    host_ = "host " + line.substr(node + 9) + " does not answer any more";
  if (host_.empty() && line.rfind("srun: error: Node failure", 0) == 0) host_ = line;
  // An error may have several lines; what another one begins, or mpirun's own words, end it.
  in_error_ = in_error_ && error_lines_ < most_error_lines && !line.empty() && line.rfind("triax", 0) != 0 &&
              line.rfind("--", 0) != 0 && line.rfind("srun: ", 0) != 0 && line.rfind('[', 0) != 0;
  if (in_error_) {
    error_ += "\n" + line;
    ++error_lines_;
  } else if (error_.empty() && line.rfind("triax: error: ", 0) == 0) {
    error_ = line.substr(14);
    in_error_ = true;
  }
}

std::string FirstCause::text() const {
  // What the watchdog found comes before the processes that it then kills, those that are stopped.
  if (has(error_, "the watchdog ends the job")) return error_;
  if (has(death_, "Killed") || has(death_, "Out Of Memory"))
    return death_ +
           "\nkilled from outside: for want of memory, then `dmesg` on that host tells, and a smaller "
           "training.micro_batch_size or more ranks help (`triax plan` shows the memory); or by somebody";
  // mpirun names the process that made it end the job, so its word counts more than the order of lines.
  return !death_.empty() ? death_ : !host_.empty() ? host_ : error_;
}

}  // namespace triax
