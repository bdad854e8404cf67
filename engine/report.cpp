#include "engine/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "checkpoint/file_io.h"
#include "core/error.h"
#include "engine/report_data.h"
#include "engine/report_page.h"

namespace triax {

namespace {

enum class Best { lowest, highest, none };

// One row: the last value and the best one, each with its step.
std::string row(const char* name, const Curve& curve, const char* format, Best best) {
  if (curve.empty()) return "";
  const auto cell = [&](const std::pair<int64_t, double>& point) {
    return fmt::format("{:>12} {:<9}", fmt::format(fmt::runtime(format), point.second),
                       fmt::format("({})", point.first));
  };
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  std::string text = fmt::format("  {:<18}{}", name, cell(curve.back()));
  if (best == Best::lowest) text += cell(*std::min_element(curve.begin(), curve.end(), by_value));
  if (best == Best::highest) text += cell(*std::max_element(curve.begin(), curve.end(), by_value));
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

std::string table(const RunReport& run) {
  return fmt::format("  {:<18}{:>12} {:<9}{:>12} (step)\n", "", "last", "(step)", "best") +
         row("training loss", run.loss, "{:.4f}", Best::lowest) +
         row("validation loss", run.validation_loss, "{:.4f}", Best::lowest) +
         row("gradient norm", run.grad_norm, "{:.4f}", Best::none) +
         row("learning rate", run.learning_rate, "{:.3e}", Best::none) +
         row("tokens/s", run.tokens_per_second, "{:.0f}", Best::highest) +
         row("TFLOP/s per rank", run.tflops, "{:.4f}", Best::highest) +
         row("exposed comm. (s)", run.exposed_seconds, "{:.6f}", Best::lowest) +
         row("hidden comm. (s)", run.hidden_seconds, "{:.6f}", Best::none);
}

std::string headline(const RunReport& run) {
  std::string text = fmt::format("{}: step {}", run.name, run.last_step);
  if (run.total_steps > 0) text += fmt::format(" of {}", run.total_steps);
  text += fmt::format(", {} tokens, {:.1f} s in steps", run.tokens, run.seconds);
  if (run.peak_bytes > 0)
    text += fmt::format(", peak memory {:.1f} MiB on the largest rank",
                        static_cast<double>(run.peak_bytes) / (1 << 20));
  return text + "\n";
}

int terminal_width() {
  const char* columns = std::getenv("COLUMNS");
  const int width = columns ? std::atoi(columns) : 0;
  return std::clamp(width > 0 ? width : 80, 40, 120);
}

}  // namespace

int report(const std::string& run_dir, std::ostream& out) {
  const RunReport run = read_run(run_dir);
  const std::string picture = (std::filesystem::path(run_dir) / "loss.svg").string();
  std::ofstream file(picture, std::ios::trunc);
  file << loss_svg(run);
  const bool written = file.flush().good();
  check(written, "can't write {}: {}; the run's folder must be writable", picture, std::strerror(errno));

  const std::string page = (std::filesystem::path(run_dir) / "report.html").string();
  replace_file(page, page_html(read_page(run_dir, run)));

  out << headline(run) << '\n' << loss_text(run, terminal_width() - 12, 14, environment_is_utf8()) << '\n';
  out << table(run);
  if (run.skipped_lines > 0)
    out << fmt::format("  {} lines of metrics.jsonl can't be read and were skipped\n", run.skipped_lines);
  out << "\npage:    " << page << "\npicture: " << picture << '\n';
  return 0;
}

}  // namespace triax
