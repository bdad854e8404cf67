#include "bench/startup.h"

#include <fmt/ostream.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/ranks.h"
#include "checkpoint/agree.h"
#include "comm/local_ranks.h"
#include "core/error.h"
#include "engine/startup.h"
#include "engine/train.h"

namespace triax {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMany = 10000;

// A folder of its own that goes with it.
class Workplace {
 public:
  explicit Workplace(const fs::path& parent) : path_(parent / fmt::format("triax-startup-{}", getpid())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    std::ofstream(path_ / "corpus.txt") << std::string(1 << 20, 'a');
  }
  ~Workplace() {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// All axes above one where the ranks allow it.
RunConfig tiny_job(int ranks, const fs::path& place) {
  RunConfig c;
  c.name = "startup";
  c.output_dir = (place / fmt::format("ranks-{}", ranks)).string();
  c.checkpoint.dir = c.output_dir + "/checkpoints";
  c.model.vocab_size = 256;
  c.model.hidden_size = 64;
  c.model.num_hidden_layers = 4;
  c.model.num_attention_heads = c.model.num_key_value_heads = 4;
  c.model.intermediate_size = 128;
  c.model.max_position_embeddings = 32;
  c.parallel.tensor = ranks % 2 == 0 ? 2 : 1;
  c.parallel.pipeline = ranks % 4 == 0 ? 2 : 1;
  c.parallel.data = ranks / (c.parallel.tensor * c.parallel.pipeline);
  c.training.steps = 1;
  c.training.micro_batch_size = 1;
  c.training.global_batch_size = 2 * c.parallel.data;
  c.training.sequence_length = 32;
  c.training.threads = 1;
  c.lr_schedule.decay_steps = 1;
  c.lr_schedule.warmup_steps = 0;
  c.data.train = {{(place / "corpus.txt").string()}};
  c.checkpoint.async = false;
  c.logging.tensorboard = false;
  return c;
}

// What was measured: a column for each number of ranks, which rise.
struct Starts {
  bool processes = false;
  std::vector<int> ranks;
  std::vector<double> totals;
  std::vector<StartupPhase> phases;
};

// The run's own record of its start.
void add(Starts& starts, int ranks, const RunConfig& config) {
  std::ifstream in(config.output_dir + "/summary.json");
  const Json start = Json::parse(in).at("startup");
  starts.ranks.push_back(ranks);
  starts.totals.push_back(start.at("seconds").get<double>());
  size_t i = 0;
  for (const Json& phase : start.at("phases")) {
    if (i == starts.phases.size()) starts.phases.push_back({phase.at("name").get<std::string>(), {}});
    starts.phases[i++].seconds.push_back(phase.at("longest").get<double>());
  }
}

Starts start_threads(std::vector<int> counts) {
  if (counts.empty()) counts = {1, 2, 4, 8, 16, 32, 64};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  const Workplace place(fs::temp_directory_path());
  Starts starts;
  for (const int ranks : counts) {
    const RunConfig config = tiny_job(ranks, place.path());
    const StopFlag stop;
    TrainRequest request;
    request.quiet = true;
    run_local_ranks(ranks, {}, [&](Communicator& world, int rank) {
      run_rank(config, world, rank, ranks, stop, request);
    });
    add(starts, ranks, config);
  }
  return starts;
}

// As one of the launcher's processes; complete on rank 0, empty elsewhere.
Starts start_process(MpiWorld& mpi, Communicator& world) {
  std::optional<Workplace> place;
  std::string folder;
  // What several hosts share is, most likely, where the user is.
  if (world.rank() == 0)
    folder = place.emplace(mpi.local_size() == world.size() ? fs::temp_directory_path() : fs::current_path())
                 .path()
                 .string();
  broadcast_bytes(world, folder, 0);
  const RunConfig config = tiny_job(world.size(), folder);
  const StopFlag stop;
  TrainRequest request;
  request.quiet = request.plain = true;
  request.started = launcher_start();
  run_rank(config, world, mpi.local_rank(), mpi.local_size(), stop, request);
  Starts starts;
  starts.processes = true;
  if (world.rank() == 0) {
    add(starts, world.size(), config);
    starts.phases.at(0).name = "launcher and MPI";
  }
  world.barrier();  // before the folder goes
  return starts;
}

Json to_json(const Starts& starts) {
  Json list = Json::array();
  for (const StartupPhase& phase : starts.phases)
    list.push_back({{"name", phase.name},
                    {"seconds", phase.seconds},
                    {"fixed", phase.fixed},
                    {"per_rank", phase.per_rank},
                    {fmt::format("at_{}", kMany), phase.at(kMany)}});
  return {
      {"processes", starts.processes}, {"ranks", starts.ranks}, {"seconds", starts.totals}, {"phases", list}};
}

[[noreturn]] void refuse_beside(const std::string& file, const char* why) {
  fail_usage("--beside {}: {}; it can be what `triax bench startup --json` has printed for other ranks", file,
             why);
}

// What an earlier start has left as JSON; null without a file.
Json read_beside(const std::string& file, bool processes) {
  if (file.empty()) return nullptr;
  std::ifstream in(file);
  Json other = Json::parse(in, nullptr, false);
  if (!other.is_object() || !other.contains("phases") || !other.contains("processes"))
    refuse_beside(file, in.is_open() ? "is no such JSON" : "can't be read");
  if (other.at("processes") != processes) refuse_beside(file, "threads and processes have other phases");
  return other;
}

// Adds its columns.
void add_beside(Starts& starts, const Json& other, const std::string& file) {
  if (other.at("phases").size() != starts.phases.size())
    refuse_beside(file, "another version has other phases");
  const auto ranks = other.at("ranks").get<std::vector<int>>();
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto at =
        std::lower_bound(starts.ranks.begin(), starts.ranks.end(), ranks[i]) - starts.ranks.begin();
    if (at < std::ssize(starts.ranks) && starts.ranks[static_cast<size_t>(at)] == ranks[i])
      refuse_beside(file, "has a number of ranks that was measured now");
    starts.ranks.insert(starts.ranks.begin() + at, ranks[i]);
    starts.totals.insert(starts.totals.begin() + at, other.at("seconds").at(i).get<double>());
    for (size_t p = 0; p < starts.phases.size(); ++p) {
      auto& seconds = starts.phases[p].seconds;
      seconds.insert(seconds.begin() + at, other.at("phases").at(p).at("seconds").at(i).get<double>());
    }
  }
}

// What the extrapolation holds of a job of processes on a cluster.
void print_limits(std::ostream& out, const Starts& starts) {
  if (starts.ranks.size() == 1)
    fmt::print(
        out,
        "one number of ranks gives no line, and all of it is taken as fixed: keep this run's --json in a "
        "file and name that to a run on another number, --beside FILE\n");
  fmt::print(out,
             "what every rank does for itself{} is counted once per core here, and is done side by side on a "
             "cluster\n",
             starts.processes ? ", its own start included," : "");
  if (!starts.processes)
    fmt::print(
        out,
        "threads have no launcher and no MPI, whose start takes most of the time of many processes and is "
        "not in these numbers: measure it by mpirun -n N triax bench startup\n");
}

void print(std::ostream& out, const Starts& starts) {
  fmt::print(out, "seconds of the slowest rank, from the start{} to the end of the first step; {}\n",
             starts.processes ? " of the launcher" : "",
             starts.processes ? "processes" : "threads of one process");
  fmt::print(out, "  {:<20}", "ranks");
  for (const int ranks : starts.ranks) fmt::print(out, " {:>8}", ranks);
  fmt::print(out, " {:>10} {:>13} {:>11}\n", "fixed", "per rank, ms", fmt::format("at {}", kMany));
  for (const StartupPhase& phase : starts.phases) {
    fmt::print(out, "  {:<20}", phase.name);
    for (const double seconds : phase.seconds) fmt::print(out, " {:>8.3f}", seconds);
    fmt::print(out, " {:>10.4f} {:>13.4f} {:>11.1f}\n", phase.fixed, 1e3 * phase.per_rank, phase.at(kMany));
  }
  fmt::print(out, "  {:<20}", "all");
  for (const double seconds : starts.totals) fmt::print(out, " {:>8.3f}", seconds);
  double many = 0;
  for (const StartupPhase& phase : starts.phases) many += phase.at(kMany);
  fmt::print(out, " {:>10} {:>13} {:>11.1f}\n", "", "", many);
  const auto most = std::max_element(starts.phases.begin(), starts.phases.end(),
                                     [](const auto& a, const auto& b) { return a.at(kMany) < b.at(kMany); });
  fmt::print(
      out, "at {} {} \"{}\" would dominate, {:.0f} % {}\n", kMany, starts.processes ? "processes" : "threads",
      most->name, 100 * most->at(kMany) / std::max(many, 1e-12),
      starts.ranks.size() > 1 ? "by the fit" : fmt::format("if all stays as with {}", starts.ranks[0]));
  print_limits(out, starts);
}

void report(std::ostream& out, const StartupOptions& options, Starts starts, const Json& beside) {
  if (!beside.is_null()) add_beside(starts, beside, options.beside);
  for (StartupPhase& phase : starts.phases) fit(phase, starts.ranks);
  if (!options.json) return print(out, starts);
  fmt::print(out, "{}\n", to_json(starts).dump(2));
}

}  // namespace

void fit(StartupPhase& phase, const std::vector<int>& ranks) {
  const double n = static_cast<double>(ranks.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double r = ranks[i], s = phase.seconds[i];
    x += r, y += s, xx += r * r, xy += r * s;
  }
  const double spread = n * xx - x * x;
  phase.per_rank = spread > 0 ? std::max(0.0, (n * xy - x * y) / spread) : 0;
  phase.fixed = (y - phase.per_rank * x) / n;
  if (phase.fixed >= 0) return;
  phase.fixed = 0;
  phase.per_rank = xy / xx;
}

void bench_startup(std::ostream& out, const StartupOptions& options) {
  int rank = 0, launched = 0;
  if (!started_by_mpi(&rank, &launched)) {
    const Json beside = read_beside(options.beside, /*processes=*/false);
    return report(out, options, start_threads(options.ranks), beside);
  }
  if (!options.ranks.empty())
    fail_usage(
        "--ranks is for threads, and a launcher started {} processes, which are the ranks; leave it out",
        launched);
  run_bench_processes([&](MpiWorld& mpi, Communicator& world) {
    Json beside;
    if (world.rank() == 0) beside = read_beside(options.beside, /*processes=*/true);
    Starts starts = start_process(mpi, world);
    if (world.rank() == 0) report(out, options, std::move(starts), beside);
  });
}

}  // namespace triax
