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
  double left = 70, top = 40, row = 30, width;
  double begin, scale;  // ms at the left edge, pixels per ms
  double x(double time) const { return left + (time - begin) * scale; }
};

using Out = std::back_insert_iterator<std::string>;

void draw_span(Out out, const Span& span, const ScheduleShape& shape, const Frame& frame, double y) {
  const double x = frame.x(span.start), width = (span.end - span.start) * frame.scale, height = frame.row - 6;
  fmt::format_to(out,
                 R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}" stroke="#fff" )"
                 R"(stroke-width="0.5"><title>{}: {:.3f} to {:.3f} ms</title></rect>)"
                 "\n",
                 x, y, width, height, colour_of(span.action, shape), describe(span.action, shape), span.start,
                 span.end);
  const std::string label = label_of(span.action, shape);
  constexpr double character = 6.5;
  if (width > character * static_cast<double>(label.size()))
    fmt::format_to(out,
                   R"(<text x="{:.2f}" y="{:.1f}" text-anchor="middle">{}</text>)"
                   "\n",
                   x + width / 2, y + height / 2 + 4, label);
}

void draw_axis(Out out, const Frame& frame, double range, double y) {
  const double step = axis_step(range, 10);
  for (int mark = 0; mark * step <= range * (1 + 1e-9); ++mark) {
    const double x = frame.x(frame.begin + mark * step);
    fmt::format_to(out,
                   R"(<line x1="{0:.2f}" y1="{1:.1f}" x2="{0:.2f}" y2="{2:.1f}" stroke="#ccc"/>)"
                   R"(<text x="{0:.2f}" y="{3:.1f}" text-anchor="middle">{4:g} ms</text>)"
                   "\n",
                   x, frame.top, y, y + 14, mark * step);
  }
}

}  // namespace

std::string render_text(const Schedule& schedule, int columns) {
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
  for (int first = 0; first < units; first += per_block) {
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

std::string render_svg(const Timeline& timeline, const std::string& title) {
  double begin = 0, end = 0;
  bool any = false;
  for (const auto& spans : timeline.stages)
    for (const Span& span : spans) {
      begin = any ? std::min(begin, span.start) : span.start;
      end = any ? std::max(end, span.end) : span.end;
      any = true;
    }
  Frame frame;
  frame.width = 1200;
  frame.begin = begin;
  const double range = end > begin ? end - begin : 1;
  frame.scale = frame.width / range;
  const double bottom = frame.top + frame.row * static_cast<double>(timeline.stages.size());

  std::string svg;
  const Out out(svg);
  fmt::format_to(out,
                 R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
                 R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="11">)"
                 "\n"
                 R"(<rect width="100%" height="100%" fill="#fff"/>)"
                 "\n"
                 R"(<text x="{2:.0f}" y="24" font-size="15">{3}</text>)"
                 "\n",
                 frame.left + frame.width + 40, bottom + 30, frame.left, escaped(title));
  draw_axis(out, frame, range, bottom);
  for (size_t stage = 0; stage < timeline.stages.size(); ++stage) {
    const double y = frame.top + frame.row * static_cast<double>(stage) + 3;
    fmt::format_to(out,
                   R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">stage {}</text>)"
                   "\n",
                   frame.left - 8, y + frame.row / 2 + 1, stage);
    for (const Span& span : timeline.stages[stage]) draw_span(out, span, timeline.shape, frame, y);
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace triax
