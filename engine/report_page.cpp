#include "engine/report_page.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/folders.h"
#include "core/fields.h"
#include "engine/job.h"
#include "engine/job_schedule.h"
#include "engine/step_trace.h"
#include "pipeline/render.h"

namespace triax {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json read_summary(const fs::path& path) {
  std::ifstream in(path);
  if (!in) return nullptr;
  Json summary = Json::parse(in, nullptr, false);
  return summary.is_object() && summary.contains("stages") && summary.contains("grid") ? summary : Json();
}

std::vector<Json> read_history(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Json event = Json::parse(line, nullptr, false);
    if (event.is_object() && event.contains("event") && event.contains("step"))
      lines.push_back(std::move(event));
  }
  return lines;
}

// A job holds a lock on its folder while it runs (RunFolder).
bool locked(const fs::path& dir) {
  const int file = open((dir / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool taken = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return taken;
}

void read_state(RunPage& page) {
  if (locked(page.dir)) {
    page.state = "running";
  } else if (!page.history.empty()) {
    const Json& last = page.history.back();
    page.state = last.value("event", "") == "end" ? last.value("outcome", "ended") : "ended";
    page.fault = last.value("words", "");
  }
}

std::string inline_text(const ConfigNode& node) {
  std::string text;
  if (node.kind == ConfigNode::Kind::scalar) return node.text;
  if (node.kind == ConfigNode::Kind::null) return "null";
  if (node.kind == ConfigNode::Kind::list) {
    for (const ConfigNode& item : node.items) text += (text.empty() ? "" : ", ") + inline_text(item);
    return "[" + text + "]";
  }
  for (const ConfigNode::Entry& entry : node.entries)
    text += (text.empty() ? "" : ", ") + entry.key + ": " + inline_text(entry.value);
  return "{" + text + "}";
}

void add_rows(const FieldTableBase& table, const ConfigNode& job, const ConfigNode& standard,
              const std::string& prefix, std::vector<ConfigurationRow>& rows) {
  for (const Field& field : table.fields()) {
    const ConfigNode *value = job.find(field.key), *usual = standard.find(field.key);
    if (!value || !usual) continue;
    if (const FieldTableBase* section = field.type->table()) {
      add_rows(*section, *value, *usual, prefix + field.key + ".", rows);
      continue;
    }
    ConfigurationRow row{prefix + field.key, inline_text(*value), inline_text(*usual), field.doc, false};
    // Whether a derived value was given is not to be seen in it.
    const bool derived = !field.default_words.empty() || row.standard == "null" || row.standard == "auto";
    row.changed = field.required || (!derived && row.value != row.standard);
    if (field.required) row.standard = "required";
    if (!field.default_words.empty()) row.standard = field.default_words;
    rows.push_back(std::move(row));
  }
}

// Of a job file that an older or newer program wrote, what can be read.
void read_configuration(RunPage& page) {
  std::vector<std::string> problems;
  const ConfigNode job = read_yaml(page.dir + "/job.yaml", problems);
  if (job.entries.empty()) return;
  add_rows(fields_of(static_cast<const RunConfig*>(nullptr)), job, write_fields(RunConfig{}), "",
           page.configuration);
  RunConfig config;
  FieldReport report;
  read_fields(job, config, report);
  page.batch_sequences = config.training.global_batch_size;
  page.batch_tokens = config.training.global_batch_size * config.training.sequence_length;
}

std::string grid_of_checkpoint(const Json& grid) {
  return grid.is_string() ? grid.get<std::string>() : grid.is_object() ? grid.value("text", grid.dump()) : "";
}

CheckpointRow checkpoint_row(const StepFolder& folder) {
  CheckpointRow row;
  row.name = folder.path.filename().string();
  row.step = folder.step;
  try {
    const CheckpointInfo info = read_complete(folder.path);
    row.bytes = info.bytes();
    row.grid = grid_of_checkpoint(info.grid);
    row.created = info.created;
    if (const auto loss = info.extra.find("loss"); loss != info.extra.end() && loss->is_number())
      row.loss = fmt::format("{:.4f}", loss->get<double>());
  } catch (const std::exception& error) {
    row.problem = error.what();
  }
  return row;
}

// Where the job says; beside the run when the folder was moved.
void read_checkpoints(RunPage& page) {
  fs::path dir = page.dir + "/checkpoints";
  for (const ConfigurationRow& row : page.configuration)
    if (row.key == "checkpoint.dir" && fs::is_directory(row.value)) dir = row.value;
  for (const StepFolder& folder : step_folders(dir)) page.checkpoints.push_back(checkpoint_row(folder));
}

void read_schedule(RunPage& page) {
  constexpr size_t most_spans = 6000;  // a picture of a few hundred kilobytes
  const auto drawn = [&](const std::vector<Panel>& panels, const std::string& unit) {
    size_t spans = 0;
    for (const Panel& panel : panels)
      for (const auto& stage : panel.timeline.stages) spans += stage.size();
    if (spans > most_spans)
      page.schedule_words = fmt::format(
          "The schedule has {} pieces of work, too many for this page; `triax plan JOB --svg FILE` draws it.",
          spans);
    else
      page.schedule_svg = render_svg(panels, unit);
  };
  try {
    const MeasuredStep measured = read_traces(page.dir);
    page.schedule_words =
        fmt::format("Step {} as it was traced, under the plan with its mean times.", measured.step);
    return drawn(measured_panels(measured), "ms");
  } catch (const Error&) {
    page.schedule_words = "As planned; with logging.trace: true a step is traced and drawn beside it.";
  }
  try {
    std::ifstream in(page.dir + "/job.yaml");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const PlannedSchedule plan = planned_schedule(config_from_yaml(text, "job.yaml"));
    drawn({{plan.timeline, "planned: " + schedule_heading(plan.timeline), in_flight(plan.schedule)}}, "F");
  } catch (const Error&) {
    page.schedule_words = "";  // a job file of another version
  }
}

}  // namespace

RunPage read_page(const std::string& run_dir, const RunReport& run) {
  RunPage page;
  page.dir = fs::absolute(run_dir).lexically_normal().string();
  page.run = run;
  page.summary = read_summary(page.dir + "/summary.json");
  page.history = read_history(page.dir + "/history.jsonl");
  read_state(page);
  read_configuration(page);
  read_checkpoints(page);
  read_schedule(page);
  return page;
}

}  // namespace triax
