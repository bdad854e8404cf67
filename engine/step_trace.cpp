#include "engine/step_trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/agree.h"
#include "checkpoint/file_io.h"
#include "core/error.h"
#include "pipeline/schedule.h"

namespace triax {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// To the nanosecond, which is finer than the clock and short to write.
double microseconds(double milliseconds) {
  return std::round(1e6 * milliseconds) / 1e3;
}

std::string place_of(const Grid& grid, int rank) {
  std::string text = fmt::format("rank {}", rank);
  for (const GridAxis& axis : grid.axes())
    text += fmt::format(", {} {}", axis.name, grid.coordinate(rank, axis.name));
  return text;
}

// The events of one rank: a process.
class RankEvents {
 public:
  RankEvents(const Grid& grid, int rank, const ScheduleShape& schedule)
      : grid_(grid), rank_(rank), schedule_(schedule) {}

  // One object a line, with commas between them.
  std::string text(const std::vector<Trace::Span>& spans) {
    metadata("process_name", 0, {{"name", place_of(grid_, rank_)}});
    metadata("process_sort_index", 0, {{"sort_index", rank_}});
    for (const Trace::Span& span : spans) add(span);
    std::stable_sort(events_.begin(), events_.end(), [](const Json& a, const Json& b) {
      const double at = a.value("ts", -1.0), bt = b.value("ts", -1.0);
      // Of what begins together the longer one is outside.
      return at != bt ? at < bt : a.value("dur", 0.0) > b.value("dur", 0.0);
    });
    std::string lines;
    for (const Json& event : events_) lines += (lines.empty() ? "" : ",\n") + event.dump();
    return lines;
  }

 private:
  void metadata(const char* what, int thread, const Json& args) {
    events_.push_back({{"ph", "M"}, {"pid", rank_}, {"tid", thread}, {"name", what}, {"args", args}});
  }

  int thread_of(const std::string& track) {
    const auto found = std::find(tracks_.begin(), tracks_.end(), track);
    const int thread = static_cast<int>(found - tracks_.begin());
    if (found != tracks_.end()) return thread;
    tracks_.push_back(track);
    metadata("thread_name", thread, {{"name", track}});
    metadata("thread_sort_index", thread, {{"sort_index", thread}});
    return thread;
  }

  // A span inside of its track is one complete event; one that may overlap others is a pair of its own.
  void add(const Trace::Span& span) {
    Json event{{"name", span.name},
               {"cat", span.track},
               {"pid", rank_},
               {"tid", thread_of(span.track)},
               {"ts", microseconds(span.start)}};
    for (const auto& [name, value] : span.numbers) event["args"][std::string(name)] = value;
    if (!span.overlaps) {
      event["ph"] = "X";
      event["dur"] = std::max(0.0, microseconds(span.end) - microseconds(span.start));
      if (span.track == "pipeline") add_arrow(event);
      events_.push_back(std::move(event));
      return;
    }
    event["ph"] = "b";
    event["id"] = (int64_t{rank_} << 24) + ++pairs_;  // of the whole file
    events_.push_back(event);
    event["ph"] = "e";
    event["ts"] = microseconds(span.end);
    event.erase("args");
    events_.push_back(std::move(event));
  }

  // Both ends of a message compute the same number from what the message is.
  void add_arrow(const Json& action) {
    const auto kind = kind_of(action.at("name").get<std::string>());
    if (!kind || is_compute(*kind)) return;
    const bool forward = *kind == ActionKind::send_forward || *kind == ActionKind::recv_forward;
    const bool send = *kind == ActionKind::send_forward || *kind == ActionKind::send_backward;
    const Json& numbers = action.at("args");
    const int part = model_part(schedule_, grid_.coordinate(rank_, "pp"), numbers.at("chunk").get<int>());
    const int upper = forward == send ? part : part - 1;  // the boundary behind this part of the model
    const int64_t parts = int64_t{schedule_.stages} * schedule_.virtual_stages;
    const int64_t message =
        ((forward ? 0 : parts) + upper) * schedule_.micro_batches + numbers.at("micro_batch").get<int64_t>();
    const double start = action.at("ts").get<double>(), end = start + action.at("dur").get<double>();
    Json arrow{{"ph", send ? "s" : "f"},
               {"cat", "message"},
               {"name", forward ? "activations" : "gradients"},
               {"id", message * grid_.size() + grid_.with(rank_, "pp", 0) + 1},
               {"pid", rank_},
               {"tid", action.at("tid")},
               // Inside of the slice that it is to touch.
               {"ts", send ? start : std::max(start, end - 0.001)}};
    if (!send) arrow["bp"] = "e";
    events_.push_back(std::move(arrow));
  }

  const Grid& grid_;
  int rank_;
  const ScheduleShape& schedule_;
  std::vector<Json> events_;
  std::vector<std::string> tracks_;
  int64_t pairs_ = 0;
};

std::string head_of(int64_t step, const Grid& grid, const ScheduleShape& schedule) {
  Json axes = Json::array();
  for (const GridAxis& axis : grid.axes()) axes.push_back({{"name", axis.name}, {"size", axis.size}});
  const Json about{{"step", step},
                   {"grid", axes},
                   {"schedule", schedule.name},
                   {"stages", schedule.stages},
                   {"virtual_stages", schedule.virtual_stages},
                   {"micro_batches", schedule.micro_batches}};
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[\n", about.dump());
}

// `path` itself, or the newest step's in or below the folder.
fs::path file_of(const std::string& path) {
  if (fs::is_regular_file(path)) return path;
  fs::path newest;
  for (const fs::path& parent : {fs::path(path) / "traces", fs::path(path)}) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(parent, none)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("step-", 0) == 0 && entry.path().extension() == ".json")
        newest = std::max(newest, entry.path());
    }
    if (!newest.empty()) return newest;
  }
  fail_usage("{} holds no trace of a step; train with logging.trace: true, and give the run's folder", path);
}

// A trace's document with the events of the schedule alone: what is not needed is dropped while parsing.
Json parse_pipeline(const fs::path& path) {
  std::ifstream in(path);
  return Json::parse(in, [](int depth, Json::parse_event_t event, Json& parsed) {
    const bool is_event = depth == 2 && event == Json::parse_event_t::object_end && parsed.contains("ph");
    return !is_event || (parsed["ph"] == "X" && parsed.value("cat", "") == "pipeline");
  });
}

Grid grid_in(const Json& about) {
  std::vector<GridAxis> axes;
  for (const Json& axis : about.at("grid"))
    axes.push_back({axis.at("name").get<std::string>(), axis.at("size").get<int>()});
  return Grid(axes);
}

std::optional<Span> work_in(const Json& event) {
  const auto kind = kind_of(event.at("name").get<std::string>());
  if (!kind || !is_compute(*kind)) return std::nullopt;
  const Json& numbers = event.at("args");
  const double start = event.at("ts").get<double>() / 1000;
  return Span{{*kind, numbers.at("micro_batch").get<int>(), numbers.at("chunk").get<int>()},
              start,
              start + event.at("dur").get<double>() / 1000};
}

}  // namespace

Trace::Clock::time_point start_together(Trace& trace, Communicator& world, bool one_host) {
  world.barrier();
  auto now = Trace::Clock::now();
  if (one_host) {
    int64_t ticks = now.time_since_epoch().count();
    const Tensor all = Tensor::of(&ticks, {1});
    world.all_reduce(all, all, ReduceOp::max).wait();
    now = Trace::Clock::time_point(Trace::Clock::duration(ticks));
  }
  trace.start(now);
  return now;
}

void StepTrace::add(std::string track, std::string name, Trace::Clock::time_point begin,
                    Trace::Clock::time_point end) {
  const auto after_origin = [&](Trace::Clock::time_point time) {
    return std::chrono::duration<double, std::milli>(time - origin).count();
  };
  spans.push_back({std::move(track), std::move(name), after_origin(begin), after_origin(end), {}});
}

void write_trace(const std::string& path, const StepTrace& trace, Communicator& world, const Grid& grid,
                 const ScheduleShape& schedule) {
  const fs::path temporary = path + ".new";
  std::unique_ptr<FileWriter> file;
  collectively(world, [&] {
    if (world.rank()) return;
    std::error_code none;
    fs::create_directories(fs::path(path).parent_path(), none);
    fs::remove(temporary, none);  // of a run that was killed
    file = std::make_unique<FileWriter>(temporary);
    const std::string head = head_of(trace.step, grid, schedule);
    file->append(head.data(), head.size());
  });
  std::exception_ptr failure;  // the others go on sending
  collect_bytes(world, RankEvents(grid, world.rank(), schedule).text(trace.spans), 0,
                [&](int rank, const std::string& events) {
                  if (failure) return;
                  try {
                    if (rank > 0) file->append(",\n", 2);
                    file->append(events.data(), events.size());
                  } catch (...) {
                    failure = std::current_exception();
                  }
                });
  collectively(world, [&] {
    if (failure) std::rethrow_exception(failure);
    if (!file) return;
    file->append("\n]}\n", 4);
    file->finish();
    rename_path(temporary, path);
  });
}

MeasuredStep read_traces(const std::string& path) {
  const fs::path file = file_of(path);
  MeasuredStep measured;
  try {
    const Json document = parse_pipeline(file);
    const Json& about = document.at("otherData");
    const Grid grid = grid_in(about);
    measured.step = about.at("step").get<int64_t>();
    measured.timeline.shape = {about.at("schedule").get<std::string>(), about.at("stages").get<int>(),
                               about.at("virtual_stages").get<int>(), about.at("micro_batches").get<int>()};
    measured.timeline.stages.resize(about.at("stages").get<size_t>());
    for (const Json& event : document.at("traceEvents")) {
      const int rank = event.at("pid").get<int>();
      if (grid.coordinate(rank, "tp") != 0 || grid.coordinate(rank, "dp") != 0) continue;
      if (const auto work = work_in(event))
        measured.timeline.stages.at(static_cast<size_t>(grid.coordinate(rank, "pp"))).push_back(*work);
    }
  } catch (const std::exception& error) {
    fail_usage("{} is no trace of a step: {}", file.string(), error.what());
  }
  for (size_t stage = 0; stage < measured.timeline.stages.size(); ++stage)
    if (measured.timeline.stages[stage].empty())
      fail_usage("{}: the trace of stage {} of {} is missing", file.string(), stage,
                 measured.timeline.stages.size());
  measure(measured.timeline);
  return measured;
}

}  // namespace triax
