#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "engine/append_file.h"
#include "optim/noise_scale.h"

namespace triax {

/// One line of metrics.jsonl, and of the console.
struct StepMetrics {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0;
  int64_t tokens = 0;            ///< target tokens so far
  int64_t consumed_samples = 0;  ///< after this step
  double step_seconds = 0;
  double tokens_per_second = 0;
  double tflops = 0;  ///< model FLOPs per rank and second, in 10^12
  std::optional<double> validation_loss;
  bool skipped = false;               ///< loss or norm were not finite, and the step changed no weight
  std::optional<NoiseSample> noise;   ///< when it was measured
  std::optional<double> noise_scale;  ///< of the averages up to this step, in sequences
  int64_t peak_bytes = 0;
  /// Of rank 0 in this step, see Recorder::Entry: time spent in communication, and time for which messages
  /// were at work while it computed.
  double exposed_seconds = 0, hidden_seconds = 0;
  /// In the last step of a window (logging.straggler_window): the rank that computed longest, and what a step
  /// of the window took of computing on it and in the middle.
  std::optional<int> slowest_rank;
  double compute_seconds_max = 0, compute_seconds_median = 0;
};

/// The object of one step with 17 significant digits, without the line's end. JSON has no numbers that are
/// not finite: they are null.
std::string to_json_line(const StepMetrics& metrics);

/// Appends to metrics.jsonl, a line per step, each handed to the operating system at once.
class MetricsFile {
 public:
  /// Opens `path`; lines after `resumed_step`, and a last line that was cut off, are removed first, so that
  /// each step stands once. An older file is replaced atomically. `report`: see AppendFile.
  MetricsFile(const std::string& path, int64_t resumed_step, AppendFile::Report report);
  void append(const StepMetrics& metrics);
  /// After the last step: a fault when there are lines that still can't be written.
  void finish() { file_.finish(); }

 private:
  AppendFile file_;
};

/// The console's progress: on a terminal the latest step under a progress bar that is redrawn in place, in a
/// pipe plain lines.
class StepConsole {
 public:
  /// Writes to `out`, `interval` steps between lines.
  /// Null `out`: silence. `plain`: no bar even on a terminal (mpirun gives rank 0 one of its own).
  /// `split`: lines tell what the step's time went into.
  StepConsole(std::FILE* out, bool plain, int64_t first_step, int64_t last_step, int64_t interval,
              bool split = false);
  void step(const StepMetrics& metrics);
  /// Another line, without disturbing the bar.
  void say(const std::string& line);
  /// Leaves the bar behind.
  void finish();

 private:
  std::string eta(const StepMetrics& metrics) const;
  void draw_bar(const StepMetrics& metrics);

  std::FILE* out_;
  bool terminal_, split_;
  int64_t first_, last_, interval_;
  double mean_seconds_ = 0;
  bool bar_ = false;
};

}  // namespace triax
