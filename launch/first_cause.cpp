#include "launch/first_cause.h"

namespace triax {

namespace {

bool has(const std::string& line, const char* text) {
  return line.find(text) != std::string::npos;
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
  // "mpirun noticed that process rank 3 with PID 0 on node h1 exited on signal 9 (Killed)."
  // "srun: error: h1: task 3: Killed", "slurmstepd: error: ... oom"
  if (death_.empty() && ((has(line, " noticed that process rank ") && has(line, " exited on signal ")) ||
                         (line.rfind("srun: error: ", 0) == 0 && has(line, ": task") &&
                          (has(line, "Killed") || has(line, "Segmentation") || has(line, "Aborted") ||
                           has(line, "Bus error") || has(line, "Out Of Memory")))))
    death_ = line;
  // "ORTE has lost communication with a remote daemon." and, lines later, "Remote daemon: [[1,0],1] on node
  // h2"
  lost_host_ = lost_host_ || has(line, "has lost communication with a remote daemon");
  const size_t node = line.find(" on node ");
  if (host_.empty() && lost_host_ && has(line, "Remote daemon:") && node != std::string::npos)
    host_ = "host " + line.substr(node + 9) + " does not answer any more";
  if (host_.empty() && line.rfind("srun: error: Node failure", 0) == 0) host_ = line;
  if (error_.empty() && line.rfind("triax: error: ", 0) == 0) error_ = line.substr(14);
}

std::string FirstCause::text() const {
  // mpirun names the process that made it end the job, so its word counts more than the order of lines.
  return !death_.empty() ? death_ : !host_.empty() ? host_ : error_;
}

}  // namespace triax
