#include "comm/rank_record.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"

namespace triax {
namespace {

using nlohmann::json;

constexpr std::array all_ops{CommOp::all_reduce, CommOp::all_gather, CommOp::reduce_scatter,
                             CommOp::broadcast,  CommOp::send,       CommOp::recv,
                             CommOp::barrier,    CommOp::split};

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

/// Turns steady time into that of the world outside, by one pair of readings.
class Epoch {
 public:
  double now() const { return now_; }
  double of(int64_t nanoseconds) const {
    return nanoseconds ? now_ - 1e-9 * static_cast<double>(steady_ - nanoseconds) : 0;
  }
  double of(Recorder::Clock::time_point t) const { return of(t.time_since_epoch().count()); }

 private:
  int64_t steady_ = Recorder::Clock::now().time_since_epoch().count();
  double now_ = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
};

// Microseconds tell enough, and keep the lines short.
double rounded(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

json to_json(const RankRecord::Call& call, size_t group) {
  return {{"group", call.group->name},    {"group_index", group},
          {"sequence", call.sequence},    {"operation", name_of(call.op)},
          {"detail", call.detail},        {"type", call.type},
          {"count", call.count},          {"place", call.place},
          {"start", rounded(call.start)}, {"end", call.end == 0 ? json() : json(rounded(call.end))}};
}

std::optional<CommOp> op_of(const std::string& name) {
  for (const CommOp op : all_ops)
    if (name_of(op) == name) return op;
  return std::nullopt;
}

RankRecord::Call call_from(const json& line, const std::vector<std::shared_ptr<const CommGroup>>& groups) {
  RankRecord::Call call;
  call.op = op_of(line.at("operation")).value();
  call.type = line.at("type");
  call.count = line.at("count");
  call.detail = line.at("detail");
  call.sequence = line.at("sequence");
  call.place = line.at("place");
  call.group = groups.at(line.at("group_index").get<size_t>());
  call.start = line.at("start");
  call.end = line.at("end").is_null() ? 0 : line.at("end").get<double>();
  return call;
}

RankRecord from_lines(std::istream& in) {
  std::string line;
  std::getline(in, line);
  const json head = json::parse(line);
  RankRecord r;
  r.rank = head.at("rank");
  r.ranks = head.at("ranks");
  r.host = head.at("host");
  r.pid = head.at("pid");
  r.run = head.at("run");
  r.inquiry = head.at("inquiry");
  r.time = head.at("time");
  r.step = head.at("step");
  if (!head.at("phase").is_null()) r.phase = head.at("phase");
  r.phase_since = head.at("phase_since").is_null() ? 0 : head.at("phase_since").get<double>();
  r.inside = head.at("waits_in").is_null() ? -1 : head.at("waits_in").get<int64_t>();
  r.since = head.at("since").is_null() ? 0 : head.at("since").get<double>();
  r.words = head.at("words");
  std::vector<std::shared_ptr<const CommGroup>> groups;
  for (const json& g : head.at("groups"))
    groups.push_back(std::make_shared<const CommGroup>(CommGroup{
        g.at("name"), static_cast<int>(g.at("members").size()), g.at("members").get<std::vector<int>>()}));
  while (std::getline(in, line)) r.calls.push_back(call_from(json::parse(line), groups));
  if (r.calls.size() != head.at("calls").get<size_t>() || r.inside >= static_cast<int64_t>(r.calls.size()))
    throw std::out_of_range("a record that was cut off");
  return r;
}

}  // namespace

std::string describe(const RankRecord::Call& call) {
  return fmt::format("{} in group '{}'",
                     describe(call.op, call.type, call.count, call.detail, call.sequence, call.place),
                     call.group->name);
}

RankRecord take_record(const Recorder& recorder, int rank, int ranks) {
  const Epoch epoch;
  RankRecord r;
  r.rank = rank;
  r.ranks = ranks;
  r.host = host_name();
  r.pid = getpid();
  r.time = epoch.now();
  const Position& at = recorder.position();
  r.step = at.step;
  if (const char* phase = at.phase) {
    r.phase = phase;
    r.phase_since = epoch.of(at.phase_since);
  }
  // The call and the time that belong together: the rank may be entering or leaving one.
  int64_t since = at.inside_since;
  uint64_t ticket = at.ticket;
  while (since != at.inside_since) since = at.inside_since, ticket = at.ticket;
  for (const Recorder::Call& c : recorder.recent()) {
    if (since && c.ticket == ticket) r.inside = static_cast<int64_t>(r.calls.size());
    r.calls.push_back({c.op, std::string(name_of(c.dtype)), c.count, c.detail, c.sequence, to_string(c.place),
                       c.group, epoch.of(c.start), c.done ? epoch.of(c.end) : 0});
  }
  if (since && r.inside < 0) r.words = "waits for an operation that is too old to be in its record";
  r.since = epoch.of(r.inside >= 0 ? since : at.outside_since.load());
  return r;
}

std::string record_path(const std::string& folder, int rank) {
  return fmt::format("{}/collectives-rank-{:05}.jsonl", folder, rank);
}

void write_record(const std::string& folder, const RankRecord& r) {
  std::map<const CommGroup*, size_t> index;
  json groups = json::array();
  std::string lines;
  for (const RankRecord::Call& call : r.calls) {
    const auto [at, is_new] = index.emplace(call.group.get(), index.size());
    if (is_new) groups.push_back({{"name", call.group->name}, {"members", call.group->members}});
    lines += to_json(call, at->second).dump() + '\n';
  }
  const auto time = [](double t) { return t == 0 ? json() : json(rounded(t)); };
  const json head{{"format", 1},
                  {"rank", r.rank},
                  {"ranks", r.ranks},
                  {"host", r.host},
                  {"pid", r.pid},
                  {"run", r.run},
                  {"inquiry", r.inquiry},
                  {"time", rounded(r.time)},
                  {"step", r.step},
                  {"phase", r.phase.empty() ? json() : json(r.phase)},
                  {"phase_since", time(r.phase_since)},
                  {"waits_in", r.inside < 0 ? json() : json(r.inside)},
                  {"since", time(r.since)},
                  {"words", r.words},
                  {"groups", groups},
                  {"calls", r.calls.size()}};
  const std::string path = record_path(folder, r.rank), temporary = path + ".new";
  std::ofstream out(temporary, std::ios::trunc);
  out << head.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << lines;
  const bool written = out.flush().good();
  check(written, "can't write {}: {}", temporary, std::strerror(errno));
  std::filesystem::rename(temporary, path);
}

std::optional<RankRecord> read_record(const std::string& folder, int rank) {
  std::ifstream in(record_path(folder, rank));
  if (!in) return std::nullopt;
  try {
    return from_lines(in);
  } catch (const std::exception&) {  // of another make, or cut off
    return std::nullopt;
  }
}

}  // namespace triax
