#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "checkpoint/text.h"
#include "engine/html.h"
#include "engine/report_page.h"
#include "parallel/grid.h"

namespace triax {

namespace {

using Json = nlohmann::json;

constexpr size_t kStages = 16;  // of more, the first ones

std::string grouped(double number) {
  std::string text = fmt::format("{:.0f}", number);
  for (int at = static_cast<int>(text.size()) - 3; at > (text[0] == '-' ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), "\u2009");  // a thin space
  return text;
}

std::string agreement(double planned, double measured) {
  if (planned == measured) return "<span class=\"good\">equal</span>";
  return fmt::format("<span class=\"bad\">{}{}</span>", measured > planned ? "+" : "\u2212",
                     grouped(std::abs(measured - planned)));
}

std::string left_out(size_t count) {
  return count > kStages
             ? fmt::format("<p class=\"note\">The first {} of {} stages; summary.json has all.</p>\n",
                           kStages, count)
             : "";
}

std::string memory_of_stage(const Json& stage) {
  HtmlTable table({"arena", ">planned", ">measured", "", ""});
  const double peak = std::max(1.0, stage.value("planned_peak", 1.0));
  for (const Json& line : stage.at("memory")) {
    const double planned = line.value("planned", 0.0), measured = line.value("measured", 0.0);
    if (planned == 0 && measured == 0) continue;
    table.row({escaped(line.value("name", "")), grouped(planned), grouped(measured),
               agreement(planned, measured),
               fmt::format("<span class=\"meter\"><i style=\"width:{:.1f}%\"></i></span>",
                           100 * std::clamp(measured / peak, 0.0, 1.0))});
  }
  const double planned = stage.value("planned_peak", 0.0), measured = stage.value("measured_peak", 0.0);
  table.row({fmt::format("peak ({})", readable_bytes(static_cast<int64_t>(measured))), grouped(planned),
             grouped(measured), agreement(planned, measured), ""},
            "total");
  return fmt::format("<div><h3>stage {}, rank {}</h3>\n<div class=\"card\">{}</div></div>\n",
                     stage.value("stage", 0), stage.value("rank", 0), table.html());
}

// "0 1 2 3", "0 4 8 .. 60".
std::string members_text(const std::vector<int>& members) {
  if (members.size() <= 8) return fmt::format("{}", fmt::join(members, " "));
  return fmt::format("{} {} {} .. {}", members[0], members[1], members[2], members.back());
}

std::string groups_text(const Grid& grid, const std::string& axis) {
  constexpr size_t shown = 16;
  std::string text;
  size_t count = 0;
  for (int rank = 0; rank < grid.size(); ++rank) {
    if (grid.coordinate(rank, axis) != 0) continue;
    if (++count <= shown) text += (text.empty() ? "" : " \u00b7 ") + members_text(grid.members(rank, {axis}));
  }
  if (count > shown) text += fmt::format(" \u00b7 and {} more", count - shown);
  return text;
}

std::string meaning(const std::string& axis) {
  if (axis == "tp") return "tensor: each layer's matrices are cut";
  if (axis == "dp") return "data: each has other sequences";
  if (axis == "pp") return "pipeline: each has other layers";
  return "";
}

}  // namespace

std::string memory_html(const Json& summary) {
  if (!summary.is_object() || summary.at("stages").empty()) return "";
  std::string html;
  const Json& stages = summary.at("stages");
  for (size_t i = 0; i < std::min(stages.size(), kStages); ++i) html += memory_of_stage(stages[i]);
  return fmt::format(
      "<h2 id=\"memory\">Memory, planned and measured</h2>\n<p class=\"note\">Bytes by arena, on the first "
      "rank of "
      "each pipeline stage: what the plan said before the first step, and the high-water mark.</p>\n{}"
      "<div class=\"two\">{}</div>\n",
      left_out(stages.size()), html);
}

std::string communication_html(const Json& summary) {
  if (!summary.is_object()) return "";
  HtmlTable table({"stage", "group", "operation", ">calls", ">bytes planned", ">bytes counted", "", ">waited",
                   ">hidden"});
  const Json& stages = summary.at("stages");
  for (size_t i = 0; i < std::min(stages.size(), kStages); ++i)
    for (const Json& line : stages[i].at("communication"))
      table.row({std::to_string(stages[i].value("stage", 0)), escaped(line.value("group", "")),
                 escaped(line.value("operation", "")), grouped(line.value("calls", 0.0)),
                 grouped(line.value("planned", 0.0)), grouped(line.value("counted", 0.0)),
                 agreement(line.value("planned", 0.0), line.value("counted", 0.0)),
                 fmt::format("{:.3f} s", line.value("exposed_seconds", 0.0)),
                 fmt::format("{:.3f} s", line.value("hidden_seconds", 0.0))});
  if (table.empty()) return "";
  return fmt::format(
      "<h2 id=\"communication\">Communication, planned and counted</h2>\n<p class=\"note\">What the first "
      "rank of each "
      "stage sent in {} steps of the latest start, by group and operation; the time it waited, and the time "
      "that was "
      "hidden under computation.</p>\n{}<div class=\"card\">{}</div>\n",
      stages.empty() ? 0 : stages[0].value("steps", 0), left_out(stages.size()), table.html());
}

std::string startup_html(const Json& summary) {
  if (!summary.is_object() || !summary.contains("startup") || !summary["startup"].is_object()) return "";
  const Json& startup = summary["startup"];
  HtmlTable table({"phase", ">slowest rank", ">mean", ""});
  const double all = std::max(1e-9, startup.value("seconds", 1.0));
  for (const Json& phase : startup.at("phases"))
    table.row({escaped(phase.value("name", "")), fmt::format("{:.3f} s", phase.value("longest", 0.0)),
               fmt::format("{:.3f} s", phase.value("mean", 0.0)),
               fmt::format("<span class=\"meter\"><i style=\"width:{:.1f}%\"></i></span>",
                           100 * std::clamp(phase.value("longest", 0.0) / all, 0.0, 1.0))});
  return fmt::format(
      "<div><h2 id=\"start\">From start to first step: {:.2f} s</h2>\n<div class=\"card\">{}</div></div>\n",
      startup.value("seconds", 0.0), table.html());
}

std::string grid_html(const Json& summary) {
  if (!summary.is_object()) return "";
  std::vector<GridAxis> axes;
  for (const Json& axis : summary["grid"].value("axes", Json::array()))
    axes.push_back({axis.value("name", ""), std::max(1, axis.value("size", 1))});
  if (axes.empty()) return "";
  const Grid grid(axes);
  HtmlTable table({"axis", ">groups", ">of ranks", "~members", "what is split"});
  for (const GridAxis& axis : axes)
    table.row({"<b>" + escaped(axis.name) + "</b>", std::to_string(grid.size() / axis.size),
               std::to_string(axis.size), "<span class=\"mono\">" + groups_text(grid, axis.name) + "</span>",
               "<span class=\"soft\">" + meaning(axis.name) + "</span>"});
  return fmt::format("<h2 id=\"grid\">Grid: {}</h2>\n<div class=\"card\">{}</div>\n",
                     escaped(to_string(grid)), table.html());
}

std::string checkpoints_html(const std::vector<CheckpointRow>& checkpoints) {
  HtmlTable table({"checkpoint", ">step", ">loss", ">size", "grid", "saved", "~state"});
  for (const CheckpointRow& c : checkpoints)
    table.row({"<span class=\"mono\">" + escaped(c.name) + "</span>", std::to_string(c.step), escaped(c.loss),
               c.bytes < 0 ? "" : readable_bytes(c.bytes), escaped(c.grid), escaped(c.created),
               c.problem.empty() ? "<span class=\"good\">complete</span>"
                                 : "<span class=\"bad\">" + escaped(c.problem) + "</span>"});
  return "<h2 id=\"checkpoints\">Checkpoints</h2>\n" +
         (table.empty() ? "<p class=\"note\">None yet.</p>\n"
                        : "<div class=\"card\">" + table.html() + "</div>\n");
}

std::string history_html(const std::vector<Json>& history) {
  HtmlTable table({"started", ">from step", ">to step", ">ranks", "grid", "host", "went on from", "ended"});
  for (size_t i = 0; i < history.size(); ++i) {
    const Json& start = history[i];
    if (start.value("event", "") != "start") continue;
    const bool ended = i + 1 < history.size() && history[i + 1].value("event", "") == "end";
    const Json end = ended ? history[i + 1] : Json::object();
    const std::string outcome = end.value("outcome", i + 1 < history.size() ? "killed" : "");
    const Json from = start.value("from", Json());
    table.row({escaped(start.value("time", "")), std::to_string(start.value("step", int64_t{0})),
               ended ? std::to_string(end.value("step", int64_t{0})) : "",
               std::to_string(start.value("ranks", 0)), escaped(start.value("grid", "")),
               escaped(start.value("host", "")),
               "<span class=\"mono\">" + escaped(from.is_string() ? from.get<std::string>() : "") + "</span>",
               fmt::format("<span class=\"{}\">{}</span> {}",
                           outcome == "fault" || outcome == "killed" ? "bad" : "soft", escaped(outcome),
                           escaped(end.value("time", "")))});
  }
  if (table.empty()) return "";
  return "<h2 id=\"history\">History</h2>\n<div class=\"card\">" + table.html() + "</div>\n";
}

std::string configuration_html(const std::vector<ConfigurationRow>& configuration) {
  if (configuration.empty()) return "";
  HtmlTable table({"key", "~value", "default"});
  std::string section;
  for (const ConfigurationRow& row : configuration) {
    const std::string head = row.key.substr(0, row.key.find('.'));
    if (row.key.find('.') != std::string::npos && head != section) {
      table.row({escaped(head), "", ""}, "section");
      section = head;
    }
    table.row({fmt::format("<span class=\"mono\" title=\"{}\">{}</span>", escaped(row.doc), escaped(row.key)),
               "<span class=\"mono\">" + escaped(row.value) + "</span>",
               "<span class=\"soft\">" + escaped(row.standard) + "</span>"},
              row.changed ? "changed" : "");
  }
  return "<h2 id=\"configuration\">Configuration</h2>\n<p class=\"note\">The effective job.yaml; what "
         "differs from the "
         "default is marked.</p>\n<div class=\"card\">" +
         table.html() + "</div>\n";
}

}  // namespace triax
