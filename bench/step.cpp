#include "bench/step.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "bench/device_rate.h"
#include "bench/gemm_rate.h"
#include "bench/memory_rate.h"
#include "bench/profile.h"
#include "bench/ranks.h"
#include "bench/step_report.h"
#include "checkpoint/agree.h"
#include "core/error.h"
#include "core/rng.h"
#include "engine/job.h"
#include "engine/plan.h"
#include "model/gpt.h"

namespace triax {

RunConfig gpt2_124m_job() {
  RunConfig config;
  config.name = "gpt2-124m";
  config.model.vocab_size = 50257;
  config.model.hidden_size = 768;
  config.model.num_hidden_layers = 12;
  config.model.num_attention_heads = config.model.num_key_value_heads = 12;
  config.model.intermediate_size = 3072;
  config.model.max_position_embeddings = 1024;
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 1;
  config.training.steps = 1000;
  config.training.global_batch_size = config.training.micro_batch_size = 4;
  config.training.sequence_length = 256;
  config.lr_schedule.name = "constant";
  config.lr_schedule.warmup_steps = 0;
  config.optimizer.lr = 1e-4;
  return config;
}

namespace {

/// A batch that is the same on every grid: [global batch, sequence + 1].
std::vector<int32_t> batch_of(const RunConfig& config, const std::string& file) {
  const int64_t vocabulary = config.model.vocab_size;
  const TrainingConfig& t = config.training;
  std::vector<int32_t> tokens(static_cast<size_t>(t.global_batch_size * (t.sequence_length + 1)));
  if (file.empty()) {
    const RandomStream stream(1, "bench tokens");
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(stream.below(static_cast<uint64_t>(vocabulary), i));
    return tokens;
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) fail_usage("--tokens {}: cannot be opened", file);
  const auto bytes = static_cast<std::streamsize>(tokens.size() * sizeof(int32_t));
  in.read(reinterpret_cast<char*>(tokens.data()), bytes);
  if (in.gcount() != bytes || in.peek() != std::ifstream::traits_type::eof())
    fail_usage("--tokens {}: has not {} bytes, int32 of {} sequences of {} + 1 tokens", file, bytes,
               t.global_batch_size, t.sequence_length);
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocabulary)
      fail_usage("--tokens {}: token {} is not in the vocabulary of {}", file, token, vocabulary);
  return tokens;
}

bool on_gpu(const RunConfig& config) {
  return config.training.device == "cuda";
}

/// One rank of the job, ready to train; with options.profile rank 0's kernels are timed.
class Steps {
 public:
  Steps(const RunConfig& config, const StepOptions& options, Communicator& world)
      : world_(world),
        backend_(make_backend(config.training.device, options.threads, world.rank())),
        taken_before_(taken()),
        timed_(*backend_.device),
        times_(options.profile && world.rank() == 0),
        mesh_(grid_of(config), world, mesh_needs(config), backend_.memory()),
        plan_(plan_rank(config, world.rank(), backend_.kernels)),
        trainer_(config, mesh_, times_ ? timed_ : *backend_.device,
                 times_ ? timed_kernels() : *backend_.kernels, plan_.scratch_bytes) {
    trainer_.initialise();
    const std::vector<int32_t> batch = batch_of(config, options.tokens);
    trainer_.load_batch(batch.data() + mesh_.coordinate("dp") * trainer_.rows_per_step() *
                                           (config.training.sequence_length + 1));
  }

  int threads() const { return backend_.device->threads().size(); }
  /// What each kernel has taken since the last forget().
  const std::map<std::string, TimedDevice::Line>& lines() const { return timed_.lines(); }
  void forget() { timed_.forget(); }

  struct Timed {
    std::vector<double> seconds, losses;
  };
  /// From the moment when all ranks begin a step until all have ended it. Collective.
  Timed run(int64_t count) {
    using Clock = std::chrono::steady_clock;
    Timed timed;
    for (int64_t i = 0; i < count; ++i) {
      world_.barrier();
      const auto start = Clock::now();
      const StepResult result = trainer_.step(++done_, {});
      backend_.device->synchronize();
      world_.barrier();
      timed.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      timed.losses.push_back(result.loss);
    }
    return timed;
  }

  /// What the ranks' GPUs hold by now; on rank 0, nothing on a CPU. Collective.
  std::optional<StepReport::Memory> memory() {
    const auto use = backend_.device->memory_use();
    if (!use) return std::nullopt;
    size_t states = 0;
    for (const MemoryLine& line : plan_.memory)
      if (line.name == "weights" || line.name == "gradients" || line.name == "optimizer")
        states += line.bytes;
    world_.barrier();  // nobody gives his memory back before
    std::optional<StepReport::Memory> chosen;
    const auto key = [](const StepReport::Memory& m) {
      return std::pair(std::max(m.planned, m.allocated) - std::min(m.planned, m.allocated), m.allocated);
    };
    const nlohmann::json mine{plan_.device_bytes(), use->most, states};
    collect_bytes(world_, mine.dump(), 0, [&](int, const std::string& bytes) {
      const auto of_rank = nlohmann::json::parse(bytes);
      const StepReport::Memory m{of_rank[0], of_rank[1], of_rank[2], use->taken - taken_before_};
      if (!chosen || key(*chosen) < key(m)) chosen = m;
    });
    return chosen;
  }

  /// Runs steps with the devices' clocks on: what a step's communication takes there, of all ranks, on rank
  /// 0. Collective.
  std::vector<StepReport::Communication> communication(int64_t steps, double& seconds) {
    Recorder& recorder = world_.recorder();
    const auto clock = backend_.device->make_clock();
    recorder.set_device_clock(clock.get());
    const Ledger before = recorder.ledger();
    Timed timed = run(steps);
    const auto taken = recorder.take_device_seconds();
    recorder.set_device_clock(nullptr);
    const Ledger sent = difference(recorder.ledger(), before);
    std::sort(timed.seconds.begin(), timed.seconds.end());
    seconds = timed.seconds[timed.seconds.size() / 2];
    nlohmann::json mine = nlohmann::json::array();
    for (const auto& [operation, s] : taken)
      mine.push_back(
          {operation.first, name_of(operation.second), s.calls, sent.at(operation).bytes, s.held, s.moving});
    std::map<std::pair<std::string, std::string>, StepReport::Communication> sums;
    collect_bytes(world_, mine.dump(), 0, [&](int, const std::string& bytes) {
      for (const auto& line : nlohmann::json::parse(bytes)) {
        auto& sum = sums[{line[0], line[1]}];
        sum.group = line[0], sum.operation = line[1];
        sum.calls += line[2].get<double>() / static_cast<double>(steps * world_.size());
        sum.bytes += line[3].get<double>() / static_cast<double>(steps * world_.size());
        sum.held += line[4].get<double>() / static_cast<double>(steps * world_.size());
        sum.moving += line[5].get<double>() / static_cast<double>(steps);
      }
    });
    std::vector<StepReport::Communication> list;
    for (const auto& [key, sum] : sums) list.push_back(sum);
    return list;
  }

 private:
  size_t taken() const {
    const auto use = backend_.device->memory_use();
    return use ? use->taken : 0;
  }

  Communicator& world_;
  Backend backend_;
  size_t taken_before_;  // before any rank has memory: all of them meet in the mesh
  TimedDevice timed_;
  bool times_;
  Mesh mesh_;
  RankPlan plan_;
  Trainer trainer_;
  int64_t done_ = 0;
};

// Rank 0 reads; the others sleep in the broadcast.
void take_turns(std::istream& in, std::ostream& out, Communicator& world, Steps& steps) {
  const bool first = world.rank() == 0;
  if (first) out << nlohmann::json{{"ready", true}, {"threads", steps.threads()}} << std::endl;
  for (;;) {
    int64_t count = 0;
    if (first && !(in >> count)) count = 0;
    world.broadcast(Tensor::of(&count, Shape{1}), 0).wait();
    if (count < 1) return;
    const Steps::Timed timed = steps.run(count);
    if (first) out << nlohmann::json{{"seconds", timed.seconds}, {"losses", timed.losses}} << std::endl;
  }
}

StepReport report_of(const RunConfig& config, std::vector<double> seconds, double gemm_before,
                     double gemm_after, const std::string& where) {
  std::sort(seconds.begin(), seconds.end());
  StepReport report;
  report.seconds = std::move(seconds);
  const TrainingConfig& t = config.training;
  report.tokens_per_second = static_cast<double>(t.global_batch_size * t.sequence_length) / report.median();
  report.flops = flops_per_token(config.model, t.sequence_length) * report.tokens_per_second;
  report.gemm_before = gemm_before;
  report.gemm_after = gemm_after;
  report.where = where;
  return report;
}

// The GEMM rate of the job's ranks on this host, or of its GPU, in the job's precision; measured by one rank
// while the others sleep.
double gemm_rate_of(const RunConfig& config, Communicator& world, int threads) {
  const DType dtype = config.training.precision == "bf16" ? DType::bf16 : DType::f32;
  double rate = 0;
  if (world.rank() == 0 && on_gpu(config))
    rate = measured_product_rate(make_backend(config.training.device, threads, 0), dtype, 1.0);
  else if (world.rank() == 0)
    rate = measured_gemm_rate(*make_cpu_device(threads), 1.0, dtype);
  world.barrier();
  return rate;
}

}  // namespace

void bench_step(std::istream& in, std::ostream& out, const RunConfig& config, const StepOptions& asked) {
  const int ranks = world_size(config);
  StepOptions options = asked;
  if (!options.threads) options.threads = compute_threads(config, ranks);
  if (options.profile && on_gpu(config))
    fail_usage("--profile times the kernels of the CPU; on a GPU, `nsys profile triax bench step` does");
  const int threads = options.threads * ranks;
  run_bench_ranks(ranks, [&](Communicator& world) {
    const bool first = world.rank() == 0;
    if (first && !options.turns && !options.json)
      fmt::print(out, "{}: {:.1f} M parameters, sequence {}, global batch {}, {}, {} compute {} per rank\n",
                 config.name, static_cast<double>(parameter_count(config.model)) / 1e6,
                 config.training.sequence_length, config.training.global_batch_size,
                 to_string(grid_of(config)), options.threads, options.threads == 1 ? "thread" : "threads");
    // Of a GPU before the job takes its memory; a GPU does not slow down for what else the host does.
    double before = on_gpu(config) && !options.turns ? gemm_rate_of(config, world, threads) : 0;
    Steps steps(config, options, world);
    if (options.turns) return take_turns(in, out, world, steps);
    if (!on_gpu(config)) before = gemm_rate_of(config, world, threads);
    steps.run(1);
    steps.forget();
    const Steps::Timed timed = steps.run(options.steps);
    const double after = on_gpu(config) ? before : gemm_rate_of(config, world, threads);
    StepReport report = report_of(config, timed.seconds, before, after,
                                  on_gpu(config) ? "one GPU" : fmt::format("{} threads", threads));
    report.memory = steps.memory();
    if (on_gpu(config) && ranks > 1)
      report.communication = steps.communication(std::min(options.steps, 5), report.clocked_seconds);
    if (!first) return;
    if (options.json)
      out << to_json(report).dump(2) << "\n";
    else
      print(out, report);
    if (!options.profile) return;
    // A rank with its threads has the roofs of its part of the machine.
    const double bandwidth = measured_memory_rates(*make_cpu_device(threads), 1.0).fastest();
    fmt::print(out, "memory        {:.1f}  GB/s on {} threads\n", bandwidth / 1e9, threads);
    print_profile(out, steps.lines(), options.steps,
                  std::accumulate(timed.seconds.begin(), timed.seconds.end(), 0.0),
                  {std::max(before, after) / ranks, bandwidth / ranks});
  });
}

}  // namespace triax
