#pragma once

#include <string>
#include <vector>

#include "engine/report_data.h"

namespace triax {

/// One line of a chart. Its place in the chart gives its colour.
struct ChartLine {
  std::string name;
  Curve curve;
  bool dots = false;  ///< a dot at every point: for what is measured now and then
};

/// Curves over the steps on one axis of values.
struct Chart {
  std::string title, unit;  ///< plain text
  std::vector<ChartLine> lines;
  bool from_zero = false;        ///< the axis begins at 0
  bool stacked = false;          ///< areas, each line on top of the one before
  bool wide_log = false;         ///< a logarithmic axis when values spread over more than two powers of ten
  std::vector<int64_t> marks{};  ///< steps with a vertical line: where a run was resumed
};

/// The chart as HTML: an SVG that stretches with the page, and labels beside it that do not. Long curves are
/// thinned. "" when no line has a point.
std::string chart_html(const Chart& chart);

/// "12.4k", "0.00031", "2.81": about three digits.
std::string short_number(double value);

}  // namespace triax
