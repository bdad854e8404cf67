#include "engine/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/html.h"

namespace triax {

namespace {

constexpr size_t kPoints = 600;  // more than a chart is wide
constexpr double kSide = 1000;   // of the stretched drawing, both ways

// Means of stretches: what is stacked must stay a sum.
Curve averaged(const Curve& curve, size_t points) {
  if (curve.size() <= points) return curve;
  Curve means;
  for (size_t i = 0; i < points; ++i) {
    const size_t begin = i * curve.size() / points, end = (i + 1) * curve.size() / points;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += curve[j].second;
    means.emplace_back(curve[(begin + end - 1) / 2].first, sum / static_cast<double>(end - begin));
  }
  return means;
}

// What is drawn: thinned, and stacked if need be.
std::vector<ChartLine> drawn_lines(const Chart& chart) {
  std::vector<ChartLine> lines;
  for (const ChartLine& line : chart.lines) {
    ChartLine drawn = line;
    drawn.curve = chart.stacked ? averaged(line.curve, kPoints / 2) : thinned(line.curve, kPoints);
    if (chart.stacked && !lines.empty())
      for (size_t i = 0; i < std::min(drawn.curve.size(), lines.back().curve.size()); ++i)
        drawn.curve[i].second += lines.back().curve[i].second;
    lines.push_back(std::move(drawn));
  }
  return lines;
}

// Data to the drawing's coordinates.
struct Scale {
  double first = std::numeric_limits<double>::infinity(), last = -first;
  double low = first, high = -first;
  bool logarithmic = false;

  Scale(const Chart& chart, const std::vector<ChartLine>& lines) {
    for (const ChartLine& line : lines)
      for (const auto& [step, value] : line.curve) {
        first = std::min(first, static_cast<double>(step));
        last = std::max(last, static_cast<double>(step));
        low = std::min(low, value);
        high = std::max(high, value);
      }
    logarithmic = chart.wide_log && low > 0 && high / low > 100;
    if (last <= first) first -= 1, last += 1;  // one step, in the middle
    if (logarithmic) {
      low = std::pow(10, std::floor(std::log10(low)));
      high = std::pow(10, std::ceil(std::log10(high)));
      return;
    }
    if (chart.from_zero || chart.stacked) low = std::min(low, 0.0);
    const double margin = high > low ? 0.06 * (high - low) : std::max(0.1 * std::abs(high), 1e-9);
    high += margin;
    if (low != 0) low -= margin;
  }
  double x(double step) const { return kSide * (step - first) / (last - first); }
  double y(double value) const {
    const double share =
        logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return kSide * (1 - share);
  }
  std::vector<double> ticks() const {
    if (!logarithmic) return axis_ticks(low, high, 4);
    std::vector<double> powers;
    const double decades = std::round(std::log10(high / low));
    const double by = std::pow(10, std::max(1.0, std::ceil(decades / 5)));
    for (double value = low; value <= high * 1.001; value *= by) powers.push_back(value);
    return powers;
  }
};

std::string points_of(const Scale& scale, const Curve& curve) {
  std::string points;
  for (const auto& [step, value] : curve)
    points += fmt::format("{}{:.2f},{:.2f}", points.empty() ? "" : " ", scale.x(static_cast<double>(step)),
                          scale.y(value));
  return points;
}

// A dot is a line of no length with round ends, which stays round however the drawing is stretched.
std::string dots_of(const Scale& scale, const Curve& curve) {
  std::string path;
  for (const auto& [step, value] : curve)
    path += fmt::format("M{:.2f} {:.2f}h0", scale.x(static_cast<double>(step)), scale.y(value));
  return path;
}

std::string labels(const Scale& scale) {
  std::string html;
  for (const double value : scale.ticks())
    html += fmt::format("<span class=\"y\" style=\"top:{:.2f}%\">{}</span>", scale.y(value) / kSide * 100,
                        short_number(value));
  for (const double step : axis_ticks(scale.first, scale.last, 4))
    if (step == std::floor(step) && step > 0)
      html += fmt::format("<span class=\"x\" style=\"left:{:.2f}%\">{}</span>", scale.x(step) / kSide * 100,
                          short_number(step));
  return html;
}

std::string drawing(const Chart& chart, const Scale& scale, const std::vector<ChartLine>& lines) {
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {0:.0f}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{1} "
      "against the step\">",
      kSide, escaped(chart.title));
  std::string rules;
  for (const double value : scale.ticks()) rules += fmt::format("M0 {:.2f}H{:.0f}", scale.y(value), kSide);
  svg += fmt::format("<path class=\"rule\" d=\"{}\"/>", rules);
  for (const int64_t step : chart.marks)
    if (const double x = scale.x(static_cast<double>(step)); x >= 0 && x <= kSide)
      svg += fmt::format("<path class=\"mark\" d=\"M{:.2f} 0V{:.0f}\"/>", x, kSide);
  for (size_t i = lines.size(); i-- > 0;) {  // the first one on top
    const ChartLine& line = lines[i];
    if (line.curve.empty()) continue;
    if (chart.stacked)
      svg += fmt::format("<polygon class=\"a{}\" points=\"{:.2f},{:.0f} {} {:.2f},{:.0f}\"/>", i + 1,
                         scale.x(static_cast<double>(line.curve.front().first)), kSide,
                         points_of(scale, line.curve), scale.x(static_cast<double>(line.curve.back().first)),
                         kSide);
    svg += fmt::format("<polyline class=\"s{}\" data-name=\"{}\" points=\"{}\"/>", i + 1, escaped(line.name),
                       points_of(scale, line.curve));
    if (line.dots || line.curve.size() == 1)
      svg += fmt::format("<path class=\"d{}\" d=\"{}\"/>", i + 1, dots_of(scale, line.curve));
  }
  return svg + "</svg>";
}

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  for (const auto& [unit, letter] :
       {std::pair<double, const char*>{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (size >= 0.9995 * unit && (unit > 1e3 || size >= 9999.5))
      return fmt::format("{:.3g}{}", value / unit, letter);
  if (size >= 999.5) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string chart_html(const Chart& chart) {
  const std::vector<ChartLine> lines = drawn_lines(chart);
  if (std::all_of(lines.begin(), lines.end(), [](const ChartLine& l) { return l.curve.empty(); })) return "";
  const Scale scale(chart, lines);
  std::string keys;
  for (size_t i = 0; i < chart.lines.size(); ++i)
    if (const ChartLine& line = chart.lines[i]; !line.curve.empty())
      keys += fmt::format("<span class=\"key\"><i class=\"k{}\"></i>{} <b>{}</b></span>", i + 1,
                          escaped(line.name), short_number(line.curve.back().second));
  return fmt::format(
      "<figure>\n<figcaption><strong>{}</strong> <small>{}{}</small></figcaption>\n<div "
      "class=\"keys\">{}</div>\n"
      "<div class=\"plot\" data-x=\"{:.17g} {:.17g}\" data-y=\"{:.17g} {:.17g}\"{}>{}{}</div>\n</figure>\n",
      escaped(chart.title), escaped(chart.unit), scale.logarithmic ? ", logarithmic" : "", keys, scale.first,
      scale.last, scale.low, scale.high,
      scale.logarithmic ? " data-log=\"1\""
      : chart.stacked   ? " data-stacked=\"1\""
                        : "",
      drawing(chart, scale, lines), labels(scale));
}

}  // namespace triax
