#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace triax {

/// A value over steps, ascending, each step once, finite values only.
using Curve = std::vector<std::pair<int64_t, double>>;

/// What a run folder says about a run.
struct RunReport {
  std::string name;         ///< of the job; the folder's name when job.yaml is missing
  int64_t total_steps = 0;  ///< of the job; 0: unknown
  int64_t last_step = 0;
  int64_t tokens = 0;  ///< target tokens so far
  double seconds = 0;  ///< spent in steps
  int64_t peak_bytes = 0;
  int64_t skipped_steps = 0;  ///< whose numbers were not finite, and which changed no weight
  int64_t skipped_lines = 0;  ///< lines in the middle of the file that are not a step's object
  Curve loss, validation_loss, grad_norm, learning_rate, tokens_per_second, tflops;
  Curve exposed_seconds, hidden_seconds;  ///< of communication, rank 0's
  std::map<std::string, Curve> numbers;   ///< all numbers of the file by their key, those above too
};

/// Reads `run_dir`/metrics.jsonl and, where it is there, job.yaml. Throws Error(usage) when no step is
/// recorded.
RunReport read_run(const std::string& run_dir);

/// The lowest and the highest point of each stretch, at most `points` of them, so that spikes survive.
Curve thinned(const Curve& curve, size_t points);

/// Round values inside [low, high], about `count` of them, 1, 2 or 5 times a power of ten apart.
std::vector<double> axis_ticks(double low, double high, int count);
/// As short as `step`, the distance between ticks, allows: "0.25", "1.0", "20000".
std::string tick_label(double value, double step);

/// The picture as an SVG document, readable on light and dark backgrounds, without scripts or outside fonts.
std::string loss_svg(const RunReport& run);

/// The curves drawn with characters, `width` columns and `height` rows of plot, labels outside: with Braille
/// patterns (2 x 4 dots per character) or in plain ASCII.
std::string loss_text(const RunReport& run, int width, int height, bool unicode);

/// Whether the locale of the environment (LC_ALL, LC_CTYPE, LANG) writes UTF-8.
bool environment_is_utf8();

}  // namespace triax
