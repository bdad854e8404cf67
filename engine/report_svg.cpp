#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/html.h"
#include "engine/report_data.h"

namespace triax {

namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 76, kRight = 930, kTop = 92, kBottom = 478;  // the plot's own edges
constexpr size_t kPoints = 1200;                                      // more than the picture can show

// Light by default; a viewer in dark mode takes the second set. Blue and orange stay apart for colour-blind
// readers, and the validation curve has dots besides.
constexpr const char* kStyle = R"(  <style>
    :root { --page: #fcfcfb; --ink: #1f1f1e; --soft: #6a6966; --grid: #e4e3df; --training: #2a78d6; --validation: #d9581c; }
    @media (prefers-color-scheme: dark) {
      :root { --page: #1a1a19; --ink: #ecebe7; --soft: #a5a49f; --grid: #363633; --training: #5598e7; --validation: #f08a4f; }
    }
    .page { fill: #fcfcfb; fill: var(--page); }
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 15px; fill: #6a6966; fill: var(--soft); }
    .title { font-size: 20px; font-weight: 600; fill: #1f1f1e; fill: var(--ink); }
    .key { fill: #1f1f1e; fill: var(--ink); }
    .grid { stroke: #e4e3df; stroke: var(--grid); stroke-width: 1; }
    .axis { stroke: #6a6966; stroke: var(--soft); stroke-width: 1; }
    .training { fill: none; stroke: #2a78d6; stroke: var(--training); stroke-width: 2; stroke-linejoin: round; }
    .validation { fill: none; stroke: #d9581c; stroke: var(--validation); stroke-width: 2; stroke-linejoin: round; }
    .dot { fill: #d9581c; fill: var(--validation); stroke: #fcfcfb; stroke: var(--page); stroke-width: 1.5; }
  </style>
)";

// Data coordinates to the page's.
struct Frame {
  double first_step, last_step, low, high;

  explicit Frame(const RunReport& run) {
    low = std::numeric_limits<double>::infinity();
    high = -low;
    first_step = low;
    last_step = high;
    for (const Curve* curve : {&run.loss, &run.validation_loss})
      for (const auto& [step, value] : *curve) {
        low = std::min(low, value);
        high = std::max(high, value);
        first_step = std::min(first_step, static_cast<double>(step));
        last_step = std::max(last_step, static_cast<double>(step));
      }
    if (!(low <= high)) low = 0, high = 1, first_step = 0, last_step = 1;
    const double margin = std::max((high - low) * 0.06, 1e-6);
    low -= margin;
    high += margin;
    if (first_step <= 1) first_step = 0;
    if (last_step <= first_step) last_step = first_step + 1;
  }
  double x(double step) const {
    return kLeft + (step - first_step) / (last_step - first_step) * (kRight - kLeft);
  }
  double y(double value) const { return kBottom - (value - low) / (high - low) * (kBottom - kTop); }
};

std::string polyline(const Frame& frame, const Curve& curve, const char* style) {
  std::string points;
  for (const auto& [step, value] : curve)
    points += fmt::format("{:.1f},{:.1f} ", frame.x(static_cast<double>(step)), frame.y(value));
  return fmt::format("  <polyline class=\"{}\" points=\"{}\"/>\n", style, points);
}

std::string axes(const Frame& frame) {
  std::string svg;
  const auto losses = axis_ticks(frame.low, frame.high, 6);
  const double loss_step = losses.size() > 1 ? losses[1] - losses[0] : 1;
  for (const double value : losses)
    svg += fmt::format(
        "  <line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
        "  <text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kRight, frame.y(value), frame.y(value), kLeft - 10, frame.y(value) + 5,
        tick_label(value, loss_step));
  for (const double step : axis_ticks(frame.first_step, frame.last_step, 8)) {
    if (step != std::floor(step)) continue;  // there are no half steps
    svg += fmt::format(
        "  <line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>\n"
        "  <text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
        frame.x(step), frame.x(step), kBottom, kBottom + 6, frame.x(step), kBottom + 24, step);
  }
  svg += fmt::format("  <line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", kLeft, kRight,
                     kBottom, kBottom);
  svg += fmt::format("  <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", (kLeft + kRight) / 2,
                     kBottom + 48);
  return svg + fmt::format(
                   "  <text x=\"22\" y=\"{0}\" text-anchor=\"middle\" transform=\"rotate(-90 22 {0})\">"
                   "cross-entropy per token</text>\n",
                   (kTop + kBottom) / 2);
}

std::string key(double x, const char* style, const char* name, const Curve& curve) {
  return fmt::format(
      "  <line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"66\" y2=\"66\"/>\n"
      "  <text class=\"key\" x=\"{}\" y=\"71\">{}: {:.3f} at step {}</text>\n",
      style, x, x + 28, x + 36, name, curve.back().second, curve.back().first);
}

}  // namespace

std::string loss_svg(const RunReport& run) {
  const Frame frame(run);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" aria-label=\"Loss of {2} against the step\">\n",
      kWidth, kHeight, escaped(run.name));
  svg += kStyle;
  svg += fmt::format("  <rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, kHeight);
  svg +=
      fmt::format("  <text class=\"title\" x=\"{}\" y=\"38\">Loss of {}</text>\n", kLeft, escaped(run.name));
  svg += axes(frame);
  if (!run.loss.empty()) {
    svg += polyline(frame, thinned(run.loss, kPoints), "training");
    svg += key(kLeft, "training", "training", run.loss);
  }
  if (!run.validation_loss.empty()) {
    const Curve curve = thinned(run.validation_loss, kPoints);
    svg += polyline(frame, curve, "validation");
    if (curve.size() <= 100)
      for (const auto& [step, value] : curve)
        svg += fmt::format("  <circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/>\n",
                           frame.x(static_cast<double>(step)), frame.y(value));
    svg += key(kLeft + 300, "validation", "validation", run.validation_loss);
  }
  return svg + "</svg>\n";
}

}  // namespace triax
