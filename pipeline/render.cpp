#include "pipeline/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "pipeline/schedule.h"
#include "pipeline/validate.h"

namespace triax {
namespace {

char letter_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return 'F';
    case ActionKind::backward_weight:
      return 'W';
    default:
      return 'B';
  }
}

// "F12", or "F12b" for chunk 1 where a stage has several.
std::string label_of(const Action& action, const ScheduleShape& shape) {
  std::string label = fmt::format("{}{}", letter_of(action.kind), action.micro_batch);
  if (shape.virtual_stages > 26)
    label += fmt::format(".{}", action.chunk);
  else if (shape.virtual_stages > 1)
    label += static_cast<char>('a' + action.chunk);
  return label;
}

// One cell per unit of time: the label where work starts, then dashes; a dot where the stage is idle.
std::vector<std::string> cells_of(const std::vector<Span>& spans, const ScheduleShape& shape, int units) {
  std::vector<std::string> cells(units, ".");
  for (const Span& span : spans) {
    const int start = static_cast<int>(std::lround(span.start)),
              end = static_cast<int>(std::lround(span.end));
    std::fill(cells.begin() + start, cells.begin() + end, "--");
    cells[start] = label_of(span.action, shape);
  }
  return cells;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Blue, green and amber; later chunks are lighter.
std::string colour_of(const Action& action, const ScheduleShape& shape) {
  const int hue = action.kind == ActionKind::forward           ? 215
                  : action.kind == ActionKind::backward_weight ? 40
                                                               : 145;
  const int lightness = 62 + 24 * action.chunk / std::max(1, shape.virtual_stages);
  return fmt::format("hsl({},60%,{}%)", hue, lightness);
}

// A round step of the time axis that gives about `wanted` marks.
double axis_step(double range, int wanted) {
  const double rough = range / wanted, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

// Places of the picture, in pixels.
struct Frame {
  double left = 190, title = 30, row = 30, axis = 34, width = 1200;
  std::string unit;
  double scale = 1;  // pixels per unit of time
  double begin = 0;  // time at the left edge, of the panel that is drawn
  double top = 0;    // of that panel's rows
  double x(double time) const { return left + (time - begin) * scale; }
  double bottom(const Panel& panel) const {
    return top + row * static_cast<double>(panel.timeline.stages.size());
  }
};

struct Range {
  double begin = 0, end = 0;
};

Range range_of(const Timeline& timeline) {
  Range range;
  bool any = false;
  for (const auto& spans : timeline.stages)
    for (const Span& span : spans) {
      range.begin = any ? std::min(range.begin, span.start) : span.start;
      range.end = any ? std::max(range.end, span.end) : span.end;
      any = true;
    }
  return range;
}

using Out = std::back_insert_iterator<std::string>;

void draw_span(Out out, const Span& span, const ScheduleShape& shape, const Frame& frame, double y) {
  const double x = frame.x(span.start), width = (span.end - span.start) * frame.scale, height = frame.row - 6;
  fmt::format_to(out,
                 R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}" stroke="#fff" )"
                 R"(stroke-width="0.5"><title>{}: {:.3f} to {:.3f} {}</title></rect>)"
                 "\n",
                 x, y, width, height, colour_of(span.action, shape), describe(span.action, shape), span.start,
                 span.end, frame.unit);
  const std::string label = label_of(span.action, shape);
  constexpr double character = 6.5;
  if (width > character * static_cast<double>(label.size()))
    fmt::format_to(out,
                   R"(<text x="{:.2f}" y="{:.1f}" text-anchor="middle">{}</text>)"
                   "\n",
                   x + width / 2, y + height / 2 + 4, label);
}

void draw_axis(Out out, const Frame& frame, double range, double bottom) {
  const double step = axis_step(range, 10);
  for (int mark = 0; mark * step <= range * (1 + 1e-9); ++mark) {
    const double x = frame.x(frame.begin + mark * step);
    fmt::format_to(out,
                   R"(<line x1="{0:.2f}" y1="{1:.1f}" x2="{0:.2f}" y2="{2:.1f}" stroke="#ccc"/>)"
                   R"(<text x="{0:.2f}" y="{3:.1f}" text-anchor="middle">{4:g} {5}</text>)"
                   "\n",
                   x, frame.top, bottom, bottom + 14, mark * step, frame.unit);
  }
}

void draw_panel(Out out, const Panel& panel, const Frame& frame, double range) {
  const Timeline& timeline = panel.timeline;
  fmt::format_to(out,
                 R"(<text x="{:.0f}" y="{:.1f}" font-size="15">{}</text>)"
                 "\n",
                 frame.left, frame.top - 10, escaped(panel.title));
  draw_axis(out, frame, range, frame.bottom(panel));
  for (size_t stage = 0; stage < timeline.stages.size(); ++stage) {
    const double y = frame.top + frame.row * static_cast<double>(stage) + 3;
    std::string label = fmt::format("stage {}", stage);
    if (stage < panel.kept.size()) label += fmt::format(", keeps {}", panel.kept[stage]);
    if (stage < timeline.stage_bubbles.size())
      label += fmt::format(", idle {:.1f} %", 100 * timeline.stage_bubbles[stage]);
    fmt::format_to(out,
                   R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)"
                   "\n",
                   frame.left - 8, y + frame.row / 2 + 1, label);
    for (const Span& span : timeline.stages[stage]) draw_span(out, span, timeline.shape, frame, y);
  }
}

}  // namespace

std::string render_text(const Schedule& schedule, int columns, int blocks) {
  const ScheduleShape& shape = schedule.shape;
  // A chunk takes 1 / virtual_stages of a stage's time, so this makes each F, B and W one unit long.
  const double unit = shape.virtual_stages;
  const Timeline timeline = simulate(schedule, {unit, unit, unit, 0});
  const int units = static_cast<int>(std::lround(timeline.makespan));
  const std::vector<int> kept = in_flight(schedule);
  const auto digits = [](int n) { return std::to_string(n).size(); };
  const size_t stage_width = digits(shape.stages - 1),
               kept_width = digits(*std::max_element(kept.begin(), kept.end())),
               cell =
                   label_of({ActionKind::forward, shape.micro_batches - 1, shape.virtual_stages - 1}, shape)
                       .size() +
                   1;
  const size_t heading = fmt::formatted_size("stage {:>{}}, keeps {:>{}} | ", 0, stage_width, 0, kept_width);
  const int per_block = std::max<int>(1, (columns - static_cast<int>(heading)) / static_cast<int>(cell));

  std::string text;
  const int all = (units + per_block - 1) / per_block, left_out = std::max(0, all - blocks);
  for (int block = 0; block < all; ++block) {
    const int first = block * per_block;
    if (left_out > 0 && block == blocks - 1) {
      text += fmt::format("\n... and {} times as long in between\n", left_out);
      block += left_out - 1;
      continue;
    }
    if (first > 0) text += '\n';
    for (int stage = 0; stage < shape.stages; ++stage) {
      const std::vector<std::string> cells = cells_of(timeline.stages[stage], shape, units);
      std::string line =
          fmt::format("stage {:>{}}, keeps {:>{}} | ", stage, stage_width, kept[stage], kept_width);
      for (int i = first; i < std::min(units, first + per_block); ++i)
        line += fmt::format("{:<{}}", cells[i], cell);
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + '\n';
    }
  }
  return text;
}

std::string render_svg(const std::vector<Panel>& panels, const std::string& unit) {
  Frame frame;
  frame.unit = escaped(unit);
  double range = 0, height = 10;
  for (const Panel& panel : panels) {
    const Range r = range_of(panel.timeline);
    range = std::max(range, r.end - r.begin);
    height += frame.title + frame.row * static_cast<double>(panel.timeline.stages.size()) + frame.axis;
  }
  if (!(range > 0)) range = 1;
  frame.scale = frame.width / range;

  std::string svg;
  const Out out(svg);
  fmt::format_to(out,
                 R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
                 R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="11">)"
                 "\n"
                 R"(<rect width="100%" height="100%" fill="#fff"/>)"
                 "\n",
                 frame.left + frame.width + 40, height);
  for (const Panel& panel : panels) {
    frame.top += frame.title;
    frame.begin = range_of(panel.timeline).begin;
    draw_panel(out, panel, frame, range);
    frame.top = frame.bottom(panel) + frame.axis;
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace triax
