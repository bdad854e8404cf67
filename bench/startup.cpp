#include "bench/startup.h"

#include <fmt/ostream.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/local_ranks.h"
#include "core/error.h"
#include "engine/train.h"

namespace triax {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMany = 10000;

// A folder of its own that goes with it.
class Workplace {
 public:
  Workplace() : path_(fs::temp_directory_path() / fmt::format("triax-startup-{}", getpid())) {
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
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

// All axes above one where the ranks allow it.
RunConfig tiny_job(int ranks, const Workplace& place) {
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

// The run's own record of its start.
Json start_once(int ranks, const Workplace& place) {
  const RunConfig config = tiny_job(ranks, place);
  const StopFlag stop;
  TrainRequest request;
  request.quiet = true;
  run_local_ranks(
      ranks, {}, [&](Communicator& world, int rank) { run_rank(config, world, rank, ranks, stop, request); });
  std::ifstream in(config.output_dir + "/summary.json");
  return Json::parse(in).at("startup");
}

std::vector<StartupPhase> measure(const StartupOptions& options, std::vector<double>& totals) {
  const Workplace place;
  std::vector<StartupPhase> phases;
  for (const int ranks : options.ranks) {
    const Json start = start_once(ranks, place);
    totals.push_back(start.at("seconds").get<double>());
    size_t i = 0;
    for (const Json& phase : start.at("phases")) {
      if (i == phases.size()) phases.push_back({phase.at("name").get<std::string>(), {}});
      phases[i++].seconds.push_back(phase.at("longest").get<double>());
    }
  }
  for (StartupPhase& phase : phases) fit(phase, options.ranks);
  return phases;
}

void print(std::ostream& out, const StartupOptions& options, const std::vector<StartupPhase>& phases,
           const std::vector<double>& totals) {
  fmt::print(
      out,
      "seconds of the slowest rank, from the start to the end of the first step; threads of one process\n");
  fmt::print(out, "  {:<20}", "ranks");
  for (const int ranks : options.ranks) fmt::print(out, " {:>8}", ranks);
  fmt::print(out, " {:>10} {:>13} {:>11}\n", "fixed", "per rank, ms", fmt::format("at {}", kMany));
  for (const StartupPhase& phase : phases) {
    fmt::print(out, "  {:<20}", phase.name);
    for (const double seconds : phase.seconds) fmt::print(out, " {:>8.3f}", seconds);
    fmt::print(out, " {:>10.4f} {:>13.4f} {:>11.1f}\n", phase.fixed, 1e3 * phase.per_rank, phase.at(kMany));
  }
  fmt::print(out, "  {:<20}", "all");
  for (const double seconds : totals) fmt::print(out, " {:>8.3f}", seconds);
  double many = 0;
  for (const StartupPhase& phase : phases) many += phase.at(kMany);
  fmt::print(out, " {:>10} {:>13} {:>11.1f}\n", "", "", many);
  const auto most = std::max_element(phases.begin(), phases.end(),
                                     [](const auto& a, const auto& b) { return a.at(kMany) < b.at(kMany); });
  fmt::print(out,
             "at {} ranks \"{}\" would dominate, {:.0f} % by the fit; what every rank computes for itself is "
             "counted once per core here, and runs side by side on a cluster\n",
             kMany, most->name, 100 * most->at(kMany) / std::max(many, 1e-12));
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
  if (started_by_mpi(&rank, &launched))
    fail_usage(
        "bench startup starts threads of one process, and a launcher started {}; what its processes take is "
        "in the summary.json of any job",
        launched);
  std::vector<double> totals;
  const std::vector<StartupPhase> phases = measure(options, totals);
  if (!options.json) return print(out, options, phases, totals);
  Json list = Json::array();
  for (const StartupPhase& phase : phases)
    list.push_back({{"name", phase.name},
                    {"seconds", phase.seconds},
                    {"fixed", phase.fixed},
                    {"per_rank", phase.per_rank},
                    {fmt::format("at_{}", kMany), phase.at(kMany)}});
  fmt::print(out, "{}\n", Json{{"ranks", options.ranks}, {"seconds", totals}, {"phases", list}}.dump(2));
}

}  // namespace triax
