#include "engine/step_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "pipeline/schedule.h"

namespace triax {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double microseconds(double milliseconds) {
  return 1000 * milliseconds;
}

std::string place_of(const Grid& grid, int rank) {
  std::string text = fmt::format("rank {}", rank);
  for (const GridAxis& axis : grid.axes())
    text += fmt::format(", {} {}", axis.name, grid.coordinate(rank, axis.name));
  return text;
}

Json metadata(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"pid", rank}, {"tid", thread}, {"name", what}, {"args", {{"name", name}}}};
}

// A span inside of its track is one complete event; one that may overlap others is a pair of its own.
void append(Json& events, const Trace::Span& span, int rank, int thread, size_t id) {
  Json event{{"name", span.name},
             {"cat", span.track},
             {"pid", rank},
             {"tid", thread},
             {"ts", microseconds(span.start)}};
  for (const auto& [name, value] : span.numbers) event["args"][std::string(name)] = value;
  if (!span.overlaps) {
    event["ph"] = "X";
    event["dur"] = microseconds(span.end - span.start);
    events.push_back(std::move(event));
    return;
  }
  event["ph"] = "b";
  event["id"] = id;
  events.push_back(event);
  event["ph"] = "e";
  event["ts"] = microseconds(span.end);
  event.erase("args");
  events.push_back(std::move(event));
}

// The folder that holds rank-*.json: `path` itself, or the newest step's below it.
fs::path folder_of(const std::string& path) {
  const auto holds_traces = [](const fs::path& folder) { return fs::exists(folder / "rank-00000.json"); };
  if (holds_traces(path)) return path;
  fs::path newest;
  for (const fs::path& parent : {fs::path(path) / "traces", fs::path(path)}) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(parent, none))
      if (holds_traces(entry.path())) newest = std::max(newest, entry.path());
    if (!newest.empty()) return newest;
  }
  fail_usage("{} holds no traces of a step; train with logging.trace: true, and give the run's folder", path);
}

std::vector<Span> work_in(const Json& events) {
  std::vector<Span> work;
  for (const Json& event : events) {
    if (event.value("cat", "") != "pipeline") continue;
    const auto kind = kind_of(event.at("name").get<std::string>());
    if (!kind || !is_compute(*kind)) continue;
    const Json& numbers = event.at("args");
    const double start = event.at("ts").get<double>() / 1000;
    work.push_back({{*kind, numbers.at("micro_batch").get<int>(), numbers.at("chunk").get<int>()},
                    start,
                    start + event.at("dur").get<double>() / 1000});
  }
  return work;
}

}  // namespace

void start_together(Trace& trace, Communicator& world, bool one_host) {
  world.barrier();
  auto now = Trace::Clock::now();
  if (one_host) {
    int64_t ticks = now.time_since_epoch().count();
    const Tensor all = Tensor::of(&ticks, {1});
    world.all_reduce(all, all, ReduceOp::max).wait();
    now = Trace::Clock::time_point(Trace::Clock::duration(ticks));
  }
  trace.start(now);
}

void write_trace(const std::string& path, const Trace& trace, int64_t step, const Grid& grid, int rank,
                 const ScheduleShape& schedule) {
  Json events = Json::array();
  events.push_back(metadata("process_name", rank, 0, place_of(grid, rank)));
  std::vector<std::string> tracks;
  for (const Trace::Span& span : trace.spans()) {
    auto track = std::find(tracks.begin(), tracks.end(), span.track);
    const int thread = static_cast<int>(track - tracks.begin());
    if (track == tracks.end()) {
      tracks.push_back(span.track);
      events.push_back(metadata("thread_name", rank, thread, span.track));
    }
    append(events, span, rank, thread, events.size());
  }
  Json place;
  for (const GridAxis& axis : grid.axes()) place[axis.name] = grid.coordinate(rank, axis.name);
  const Json file{{"displayTimeUnit", "ms"},
                  {"otherData",
                   {{"step", step},
                    {"rank", rank},
                    {"place", place},
                    {"schedule", schedule.name},
                    {"stages", schedule.stages},
                    {"virtual_stages", schedule.virtual_stages},
                    {"micro_batches", schedule.micro_batches}}},
                  {"traceEvents", events}};
  std::error_code none;
  fs::create_directories(fs::path(path).parent_path(), none);
  errno = 0;
  std::ofstream out(path, std::ios::trunc);
  out << file << '\n';
  const bool written = out.flush().good();
  check(written, "can't write the trace {}: {}", path, std::strerror(errno));
}

MeasuredStep read_traces(const std::string& path) {
  const fs::path folder = folder_of(path);
  MeasuredStep measured;
  std::vector<bool> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    try {
      const Json file = Json::parse(std::ifstream(entry.path()));
      const Json& about = file.at("otherData");
      measured.step = about.at("step").get<int64_t>();
      ScheduleShape& shape = measured.timeline.shape;
      shape = {about.at("schedule").get<std::string>(), about.at("stages").get<int>(),
               about.at("virtual_stages").get<int>(), about.at("micro_batches").get<int>()};
      const Json& place = about.at("place");
      if (place.at("tp").get<int>() != 0 || place.at("dp").get<int>() != 0) continue;
      found.resize(static_cast<size_t>(shape.stages));
      measured.timeline.stages.resize(found.size());
      const auto stage = place.at("pp").get<size_t>();
      measured.timeline.stages.at(stage) = work_in(file.at("traceEvents"));
      found.at(stage) = true;
    } catch (const std::exception& error) {
      fail_usage("{} is no trace of a step: {}", entry.path().string(), error.what());
    }
  }
  const auto missing = std::find(found.begin(), found.end(), false);
  if (missing != found.end())
    fail_usage("{}: the trace of stage {} of {} is missing", folder.string(), missing - found.begin(),
               found.size());
  measure(measured.timeline);
  return measured;
}

}  // namespace triax
