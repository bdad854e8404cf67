#pragma once

#include <string>

namespace triax {

/// Reads what ranks and their launcher say while a job ends, and finds the line that tells why: a rank's
/// death by a signal or a lost host as mpirun or srun report them, else the first error that a rank printed.
/// Other ranks' errors only follow.
class FirstCause {
 public:
  /// More of the text; lines may come in pieces.
  void add(const char* text, size_t size);
  /// The cause, in one line; empty while nothing of the kind was said.
  std::string text() const;
  /// False when srun could not start its tasks: its own status may be 0 all the same (Slurm 22.05).
  bool started() const { return started_; }

 private:
  void line(const std::string& line);

  std::string rest_, death_, host_, error_;
  bool lost_host_ = false, started_ = true, in_error_ = false;
  int error_lines_ = 1;
};

}  // namespace triax
