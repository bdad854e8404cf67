#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoint/text.h"
#include "engine/html.h"
#include "engine/report_chart.h"
#include "engine/report_page.h"
#include "engine/report_style.h"
#include "engine/run_record.h"

namespace triax {

namespace {

using Json = nlohmann::json;

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b></div>\n", name, value);
}

double median(const Curve& curve) {
  std::vector<double> values;
  for (const auto& [step, value] : curve) values.push_back(value);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string tiles_html(const RunPage& page) {
  const RunReport& run = page.run;
  std::string html = tile("step", run.total_steps ? fmt::format("{} of {}", run.last_step, run.total_steps)
                                                  : std::to_string(run.last_step));
  if (!run.loss.empty()) html += tile("training loss", fmt::format("{:.4f}", run.loss.back().second));
  if (!run.validation_loss.empty())
    html += tile("validation loss", fmt::format("{:.4f}", run.validation_loss.back().second));
  html += tile("tokens", short_number(static_cast<double>(run.tokens)));
  if (!run.tokens_per_second.empty())
    html += tile("tokens/s, median", short_number(median(run.tokens_per_second)));
  if (!run.tflops.empty()) html += tile("TFLOP/s per rank", short_number(median(run.tflops)));
  if (run.peak_bytes > 0) html += tile("peak memory, largest rank", readable_bytes(run.peak_bytes));
  if (run.skipped_steps > 0) html += tile("skipped steps", std::to_string(run.skipped_steps));
  html += tile("time in steps", duration(run.seconds));
  return "<div class=\"tiles\">\n" + html + "</div>\n";
}

const Curve* curve_of(const RunReport& run, const char* key) {
  const auto found = run.numbers.find(key);
  return found == run.numbers.end() ? nullptr : &found->second;
}

// Both at the same steps, so that they can be stacked.
std::pair<Curve, Curve> step_split(const RunReport& run) {
  std::pair<Curve, Curve> split;
  const Curve* seconds = curve_of(run, "step_seconds");
  if (!seconds) return split;
  auto waited = run.exposed_seconds.begin();
  for (const auto& [step, all] : *seconds) {
    while (waited != run.exposed_seconds.end() && waited->first < step) ++waited;
    const bool known = waited != run.exposed_seconds.end() && waited->first == step;
    const double communication = known ? std::min(waited->second, all) : 0;
    split.first.emplace_back(step, all - communication);
    split.second.emplace_back(step, communication);
  }
  if (run.exposed_seconds.empty()) split.second.clear();
  return split;
}

// The estimate of McCandlish et al. beside the batch that is used.
Chart noise_chart(const RunPage& page, const Curve& noise) {
  Chart chart{
      "Gradient noise scale", "sequences: an estimate of the critical batch size", {{"noise scale", noise}}};
  chart.wide_log = true;
  if (page.batch_sequences > 0) {
    Curve batch;
    for (const auto& point : {noise.front(), noise.back()})
      batch.emplace_back(point.first, static_cast<double>(page.batch_sequences));
    chart.lines.push_back({"batch size", batch});
  }
  return chart;
}

std::string charts_html(const RunPage& page) {
  const RunReport& run = page.run;
  std::vector<int64_t> resumed;
  for (const Json& event : page.history)
    if (event.value("event", "") == "start" && event.value("step", int64_t{0}) > 0)
      resumed.push_back(event.value("step", int64_t{0}));
  std::vector<Chart> charts;
  charts.push_back({"Loss",
                    "cross-entropy per token",
                    {{"training", run.loss}, {"validation", run.validation_loss, true}}});
  charts.push_back({"Gradient norm", "before clipping", {{"norm", run.grad_norm}}});
  charts.back().wide_log = charts.back().from_zero = true;
  charts.push_back({"Learning rate", "", {{"lr", run.learning_rate}}, true});
  charts.push_back({"Throughput", "tokens per second", {{"tokens/s", run.tokens_per_second}}, true});
  charts.push_back({"Model FLOPs", "TFLOP/s per rank", {{"TFLOP/s", run.tflops}}, true});
  auto [computation, communication] = step_split(run);
  charts.push_back({"Step time",
                    "seconds, rank 0",
                    {{"computation", computation}, {"waiting for messages", communication}}});
  charts.back().stacked = true;
  const Curve *slowest = curve_of(run, "compute_seconds_max"),
              *middle = curve_of(run, "compute_seconds_median");
  if (slowest && middle)
    charts.push_back({"Ranks' computing",
                      "seconds a step, by windows",
                      {{"slowest rank", *slowest, true}, {"rank in the middle", *middle, true}},
                      true});
  if (const Curve* which = curve_of(run, "slowest_rank"))
    charts.push_back(
        {"Slowest rank", "its number; one that stays is a straggler", {{"rank", *which, true}}, true});
  // What other parts of the program measure now and then.
  static const std::set<std::string> drawn{"step",
                                           "loss",
                                           "validation_loss",
                                           "grad_norm",
                                           "lr",
                                           "tokens",
                                           "consumed_samples",
                                           "step_seconds",
                                           "gradient_noise_trace",
                                           "gradient_norm_squared",
                                           "slowest_rank",
                                           "compute_seconds_max",
                                           "compute_seconds_median",
                                           "tokens_per_second",
                                           "tflops",
                                           "exposed_seconds",
                                           "hidden_seconds",
                                           "peak_bytes"};
  for (const auto& [key, curve] : run.numbers) {
    if (drawn.count(key)) continue;
    if (key == "gradient_noise_scale")
      charts.push_back(noise_chart(page, curve));
    else
      charts.push_back({key, "", {{key, curve}}});
  }
  std::string html;
  for (Chart& chart : charts) {
    chart.marks = resumed;
    html += chart_html(chart);
  }
  return "<h2 id=\"curves\">Curves</h2>\n<div class=\"charts\">\n" + html + "</div>\n";
}

std::string schedule_html(const RunPage& page) {
  if (page.schedule_words.empty()) return "";
  std::string html =
      fmt::format("<h2 id=\"schedule\">Schedule, planned and traced</h2>\n<p class=\"note\">{}</p>\n",
                  escaped(page.schedule_words));
  if (!page.schedule_svg.empty()) html += "<div class=\"wide\">\n" + page.schedule_svg + "</div>\n";
  return html;
}

}  // namespace

std::string page_html(const RunPage& page) {
  const std::string name = escaped(page.run.name);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}: Triax "
      "report</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{}{}</h1>\n<p>{}</p>\n{}</header>\n",
      name, report_style, name,
      page.state.empty() ? "" : fmt::format(" <span class=\"state {0}\">{0}</span>", escaped(page.state)),
      escaped(page.dir),
      page.fault.empty() ? "" : fmt::format("<p class=\"bad\">{}</p>\n", escaped(page.fault)));
  html += tiles_html(page) + charts_html(page) + memory_html(page.summary) +
          communication_html(page.summary) + schedule_html(page) + grid_html(page.summary) +
          checkpoints_html(page.checkpoints) + history_html(page.history) + startup_html(page.summary) +
          configuration_html(page.configuration);
  std::string skipped;
  if (page.run.skipped_lines > 0)
    skipped =
        fmt::format(" {} lines of metrics.jsonl can't be read and were skipped.", page.run.skipped_lines);
  return html +
         fmt::format(
             "<footer>Made by triax report, {}.{}</footer>\n</main>\n<script>{}</script>\n</body>\n</html>\n",
             utc_now(), skipped, report_script);
}

}  // namespace triax
