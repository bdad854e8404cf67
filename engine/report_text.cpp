#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/report_data.h"

namespace triax {

namespace {

/// A canvas of characters: training loss as dots, validation loss as marks over them.
class Canvas {
 public:
  Canvas(int width, int height, bool unicode)
      : width_(width),
        height_(height),
        across_(unicode ? 2 : 1),
        down_(unicode ? 4 : 1),
        dots_(static_cast<size_t>(width) * static_cast<size_t>(height)),
        marks_(dots_.size()),
        unicode_(unicode) {}

  int columns() const { return width_ * across_; }
  int rows() const { return height_ * down_; }

  void dot(int column, int row) {
    // Braille's dots 1-8 lie at bits 0 1 2 6 (left) and 3 4 5 7 (right), from the top (Unicode, block 2800).
    static constexpr unsigned char kBit[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    dots_[cell(column, row)] |= unicode_ ? kBit[column % 2][row % 4] : 1;
  }
  void mark(int column, int row) { marks_[cell(column, row)] = true; }

  std::string line(int row) const {
    std::string text;
    for (int column = 0; column < width_; ++column) {
      const size_t i = static_cast<size_t>(row) * static_cast<size_t>(width_) + static_cast<size_t>(column);
      if (marks_[i])
        text += unicode_ ? "\u25c6" : "o";
      else if (dots_[i] == 0)
        text += ' ';
      else if (unicode_)  // U+2800 + dots, in UTF-8
        text +=
            {'\xe2', static_cast<char>(0xa0 | (dots_[i] >> 6)), static_cast<char>(0x80 | (dots_[i] & 0x3f))};
      else
        text += '.';
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  size_t cell(int column, int row) const {
    return static_cast<size_t>(row / down_) * static_cast<size_t>(width_) +
           static_cast<size_t>(column / across_);
  }
  int width_, height_, across_, down_;
  std::vector<unsigned char> dots_;
  std::vector<bool> marks_;
  bool unicode_;
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Where `value` lies among `cells` cells.
  int cell(double value, int cells) const {
    const double share = high > low ? (value - low) / (high - low) : 0.5;
    return std::clamp(static_cast<int>(share * cells), 0, cells - 1);
  }
};

// One dot per column at least, joined upwards and downwards, so that the line has no holes.
void draw_line(Canvas& canvas, const Curve& curve, const Range& steps, const Range& values) {
  int before_column = -1, before_row = -1;
  for (const auto& [step, value] : curve) {
    const int column = steps.cell(static_cast<double>(step), canvas.columns());
    const int row = canvas.rows() - 1 - values.cell(value, canvas.rows());
    if (before_column < 0) before_column = column, before_row = row;
    const int length = std::max({std::abs(column - before_column), std::abs(row - before_row), 1});
    for (int i = 0; i <= length; ++i)
      canvas.dot(before_column + (column - before_column) * i / length,
                 before_row + (row - before_row) * i / length);
    before_column = column;
    before_row = row;
  }
}

}  // namespace

std::string loss_text(const RunReport& run, int width, int height, bool unicode) {
  Range steps, values;
  for (const Curve* curve : {&run.loss, &run.validation_loss})
    for (const auto& [step, value] : *curve) {
      steps.add(static_cast<double>(step));
      values.add(value);
    }
  if (!(values.low <= values.high)) return "no finite loss to draw\n";

  Canvas canvas(width, height, unicode);
  draw_line(canvas, run.loss, steps, values);
  for (const auto& [step, value] : run.validation_loss)
    canvas.mark(steps.cell(static_cast<double>(step), canvas.columns()),
                canvas.rows() - 1 - values.cell(value, canvas.rows()));

  const char* side = unicode ? "\u2502" : "|";
  std::string text;
  for (int row = 0; row < height; ++row) {
    const bool labelled = row == 0 || row == height - 1 || row == height / 2;
    const double value = values.high - (values.high - values.low) * row / std::max(height - 1, 1);
    text += fmt::format("{:>8} {}{}\n", labelled ? fmt::format("{:.3f}", value) : "", side, canvas.line(row));
  }
  std::string axis;
  for (int column = 0; column < width; ++column) axis += unicode ? "\u2500" : "-";
  text += fmt::format("{:>8} {}{}\n", "", unicode ? "\u2514" : "+", axis);
  const std::string first = fmt::format("step {:.0f}", steps.low), last = fmt::format("{:.0f}", steps.high);
  text +=
      fmt::format("{:>8}  {}{:>{}}\n", "", first, last, std::max(width - static_cast<int>(first.size()), 1));
  const char* training = unicode ? "\u28c0\u28e0\u2824" : "...";
  text += fmt::format("{:>8}  {} training loss", "", training);
  if (!run.validation_loss.empty()) text += fmt::format("   {} validation loss", unicode ? "\u25c6" : "o");
  return text + "\n";
}

}  // namespace triax
