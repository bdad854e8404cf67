#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>

namespace triax {

/// What one rank has to say: all of it goes to the rank's own file, each line with its time and flushed;
/// errors of any rank and rank 0's console lines are seen on the console too. A line of the file is
/// "2026-11-21T18:00:00.123 info step 42: text". Handed by reference; a rank's log is used by that rank's
/// threads only one at a time.
class Log {
 public:
  /// Appends to `path`, whose folder exists; a fault when it can't be written. `verbose`: the console gets
  /// everything, on standard error and with the rank. `quiet`: of what is not a warning or an error, nothing.
  Log(const std::string& path, int rank, bool verbose = false, bool quiet = false);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  int rank() const { return rank_; }
  /// The step that later lines of the file name; 0: none.
  void set_step(int64_t step) { step_ = step; }

  /// To the file alone.
  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::info, fmt::format(text, std::forward<Args>(args)...));
  }
  /// To the file, and to standard output from rank 0.
  template <class... Args>
  void console(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::console, fmt::format(text, std::forward<Args>(args)...));
  }
  /// To the file, and to standard error with the rank: nothing failed, but someone should know.
  template <class... Args>
  void warn(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::warning, fmt::format(text, std::forward<Args>(args)...));
  }
  /// To the file alone, as an error: of one that the console learns otherwise.
  template <class... Args>
  void note_error(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::noted_error, fmt::format(text, std::forward<Args>(args)...));
  }
  /// To the file, and to standard error with the rank.
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::error, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  enum class Level { info, console, warning, noted_error, error };
  void write(Level level, const std::string& text);

  struct Impl;
  std::unique_ptr<Impl> impl_;
  int rank_;
  bool verbose_, quiet_;
  int64_t step_ = 0;
};

}  // namespace triax
