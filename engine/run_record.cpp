#include "engine/run_record.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <ctime>

#include "checkpoint/agree.h"
#include "checkpoint/file_io.h"

namespace triax {

namespace {

using Json = nlohmann::json;

std::string dumped(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);  // names may be in any encoding
}

Json memory_json(const std::vector<MemoryLine>& planned, const std::vector<MemoryLine>& measured) {
  Json lines = Json::array();
  for (size_t i = 0; i < planned.size(); ++i)
    lines.push_back(
        {{"name", planned[i].name}, {"planned", planned[i].bytes}, {"measured", measured.at(i).bytes}});
  return lines;
}

Json grid_json(const Grid& grid) {
  Json axes = Json::array();
  for (const GridAxis& axis : grid.axes()) axes.push_back({{"name", axis.name}, {"size", axis.size}});
  return {{"text", to_string(grid)}, {"axes", axes}};
}

}  // namespace

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

RunRecord::RunRecord(std::string dir, const Mesh& mesh, Communicator& world, AppendFile::Report report)
    : dir_(std::move(dir)), mesh_(mesh), world_(world), report_(std::move(report)) {
  if (world_.rank() == 0) history_ = std::make_unique<AppendFile>(dir_ + "/history.jsonl", report_);
}

void RunRecord::note(Json line) {
  if (!history_) return;
  line["time"] = utc_now();
  history_->append(dumped(line) + "\n");
}

void RunRecord::begun(int64_t step, const std::string& from) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  note({{"event", "start"},
        {"step", step},
        {"ranks", world_.size()},
        {"grid", to_string(mesh_.grid())},
        {"host", host},
        {"from", from.empty() ? Json() : Json(from)}});
}

void RunRecord::ended(int64_t step, const std::string& outcome, const std::string& words) {
  Json line{{"event", "end"}, {"step", step}, {"outcome", outcome}};
  if (!words.empty()) line["words"] = words;
  note(std::move(line));
}

void RunRecord::summarise(int64_t step, const RankPlan& plan, const PlanCheck& counted,
                          const Trainer& trainer) {
  std::string mine;
  if (mesh_.coordinate("tp") == 0 && mesh_.coordinate("dp") == 0)
    mine = dumped({{"stage", mesh_.coordinate("pp")},
                   {"rank", world_.rank()},
                   {"memory", memory_json(plan.memory, trainer.memory())},
                   {"planned_peak", plan.peak_bytes},
                   {"measured_peak", trainer.peak_bytes()},
                   {"steps", counted.steps()},
                   {"communication", counted.communication()}});
  Json stages = Json::array();
  collect_bytes(world_, mine, 0, [&](int, const std::string& bytes) {
    if (!bytes.empty()) stages.push_back(Json::parse(bytes));
  });
  if (world_.rank()) return;
  const Json summary{{"format", 1},
                     {"written", utc_now()},
                     {"step", step},
                     {"ranks", world_.size()},
                     {"grid", grid_json(mesh_.grid())},
                     {"stages", stages},
                     {"startup", startup_}};
  try {
    replace_file(dir_ + "/summary.json", dumped(summary, 1) + "\n");
  } catch (const std::exception& error) {
    report_(fmt::format("{}; the run goes on without it", error.what()));
  }
}

}  // namespace triax
