#include "engine/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace triax {

namespace {

std::string number(double x) {
  return std::isfinite(x) ? fmt::format("{:.17g}", x) : "null";
}

}  // namespace

std::string to_json_line(const StepMetrics& m) {
  std::string line =
      fmt::format(R"({{"step":{},"loss":{},"grad_norm":{},"lr":{:.17g},"tokens":{},"consumed_samples":{},)"
                  R"("step_seconds":{:.17g},"tokens_per_second":{:.17g},"tflops":{:.17g},)",
                  m.step, number(m.loss), number(m.grad_norm), m.learning_rate, m.tokens, m.consumed_samples,
                  m.step_seconds, m.tokens_per_second, m.tflops);
  if (m.skipped) line += R"("skipped":true,)";
  if (m.validation_loss) line += fmt::format(R"("validation_loss":{},)", number(*m.validation_loss));
  if (m.noise)
    line += fmt::format(R"("gradient_noise_scale":{},"gradient_noise_trace":{},"gradient_norm_squared":{},)",
                        m.noise_scale ? number(*m.noise_scale) : "null", number(m.noise->trace),
                        number(m.noise->norm_squared));
  if (m.slowest_rank)
    line +=
        fmt::format(R"("slowest_rank":{},"compute_seconds_max":{:.17g},"compute_seconds_median":{:.17g},)",
                    *m.slowest_rank, m.compute_seconds_max, m.compute_seconds_median);
  return line + fmt::format(R"("exposed_seconds":{:.17g},"hidden_seconds":{:.17g},"peak_bytes":{}}})",
                            m.exposed_seconds, m.hidden_seconds, m.peak_bytes);
}

namespace {

// The lines of an earlier run that stay: whole ones, up to the step that this run resumes at.
std::string kept_lines(const std::string& path, int64_t resumed_step) {
  std::string kept, line;
  std::ifstream in(path);
  while (std::getline(in, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || object.value("step", resumed_step + 1) > resumed_step) break;
    kept += line + '\n';
  }
  return kept;
}

// Leaves only those lines in the file. Returns `path`.
std::string without_later_lines(const std::string& path, int64_t resumed_step) {
  const std::string kept = kept_lines(path, resumed_step);
  const std::string temporary = path + ".new";
  std::ofstream out(temporary, std::ios::trunc);
  out << kept;
  const bool written = out.flush().good();
  check(written, "can't write {}: {}", temporary, std::strerror(errno));
  std::filesystem::rename(temporary, path);
  return path;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t resumed_step, AppendFile::Report report)
    : file_(without_later_lines(path, resumed_step), std::move(report)) {}

void MetricsFile::append(const StepMetrics& metrics) {
  file_.append(to_json_line(metrics) + '\n');
}

namespace {

std::string short_time(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s >= 86400) return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

}  // namespace

StepConsole::StepConsole(std::FILE* out, bool plain, int64_t first_step, int64_t last_step, int64_t interval,
                         bool split)
    : out_(out),
      terminal_(out && !plain && isatty(fileno(out)) != 0),
      split_(split),
      first_(first_step),
      last_(last_step),
      interval_(interval) {}

std::string StepConsole::eta(const StepMetrics& m) const {
  return short_time(mean_seconds_ * static_cast<double>(last_ - m.step));
}

void StepConsole::step(const StepMetrics& m) {
  // A running mean that forgets the first steps, which are slower than the rest.
  mean_seconds_ = m.step <= first_ + 1 ? m.step_seconds : 0.9 * mean_seconds_ + 0.1 * m.step_seconds;
  const bool due = m.step % interval_ == 0 || m.step == last_ || m.validation_loss || m.skipped;
  if (due) {
    std::string line = fmt::format(
        "step {:>{}}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  {:.3f} TFLOP/s  ETA {}",
        m.step, fmt::formatted_size("{}", last_), last_, m.loss, m.grad_norm, m.learning_rate,
        m.tokens_per_second, m.tflops, eta(m));
    if (m.validation_loss) line += fmt::format("  validation loss {:.4f}", *m.validation_loss);
    if (m.skipped) line += "  skipped";
    if (split_)
      line += fmt::format("  {:.4f} s: {:.4f} computing, {:.4f} waiting for messages, {:.4f} of them hidden",
                          m.step_seconds, m.step_seconds - m.exposed_seconds, m.exposed_seconds,
                          m.hidden_seconds);
    say(line);
  }
  if (terminal_) draw_bar(m);
}

void StepConsole::draw_bar(const StepMetrics& m) {
  constexpr int width = 40;
  const double share = static_cast<double>(m.step) / static_cast<double>(std::max<int64_t>(last_, 1));
  const int full = static_cast<int>(share * width);
  fmt::print(out_, "\r\x1b[K[{:#<{}}{:.<{}}] {:3.0f} %  loss {:.4f}  ETA {}", "", full, "", width - full,
             100 * share, m.loss, eta(m));
  std::fflush(out_);
  bar_ = true;
}

void StepConsole::say(const std::string& line) {
  if (!out_) return;
  if (bar_) fmt::print(out_, "\r\x1b[K");
  bar_ = false;
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void StepConsole::finish() {
  if (!out_) return;
  if (bar_) fmt::print(out_, "\n");
  bar_ = false;
  std::fflush(out_);
}

}  // namespace triax
