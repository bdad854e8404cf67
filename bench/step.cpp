#include "bench/step.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "bench/gemm_rate.h"
#include "bench/profile.h"
#include "comm/local_ranks.h"
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

std::vector<int32_t> random_rows(const RunConfig& config, int rank, int64_t rows) {
  std::vector<int32_t> tokens(static_cast<size_t>(rows * (config.training.sequence_length + 1)));
  const RandomStream stream(static_cast<uint64_t>(rank), "bench tokens");
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(stream.below(static_cast<uint64_t>(config.model.vocab_size), i));
  return tokens;
}

/// Rank 0's counted steps.
struct Measured {
  std::vector<double> seconds;                     // of each
  std::map<std::string, TimedDevice::Line> lines;  // of all, where kernels are timed
};

Measured time_steps(const RunConfig& config, int steps, int threads, bool profile) {
  using Clock = std::chrono::steady_clock;
  Measured measured;
  run_local_ranks(world_size(config), {}, [&](Communicator& world, int rank) {
    const auto cpu = make_cpu_device(threads);
    TimedDevice timed(*cpu);
    const bool times = profile && rank == 0;
    Device& device = times ? timed : *cpu;
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, device, times ? timed_kernels() : cpu_kernels(),
                    plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    const auto rows = random_rows(config, mesh.coordinate("dp"), trainer.rows_per_step());
    trainer.load_batch(rows.data());
    for (int s = 0; s <= steps; ++s) {
      world.barrier();
      const auto start = Clock::now();
      trainer.step(s + 1, {});
      world.barrier();
      if (rank == 0 && s > 0)
        measured.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      if (s == 0) timed.forget();
    }
    if (rank == 0) measured.lines = timed.lines();
  });
  return measured;
}

}  // namespace

void bench_step(std::ostream& out, const RunConfig& config, int steps, int threads, bool profile) {
  const TrainingConfig& t = config.training;
  const int ranks = world_size(config);
  fmt::print(out, "{}: {:.1f} M parameters, sequence {}, global batch {}, {}, {} compute {} per rank\n",
             config.name, static_cast<double>(parameter_count(config.model)) / 1e6, t.sequence_length,
             t.global_batch_size, to_string(grid_of(config)), threads, threads == 1 ? "thread" : "threads");
  const auto device = make_cpu_device(threads * ranks);
  const double before = measured_gemm_rate(*device, 1.0);
  const Measured measured = time_steps(config, steps, threads, profile);
  std::vector<double> seconds = measured.seconds;
  const double after = measured_gemm_rate(*device, 1.0);
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double tokens = static_cast<double>(t.global_batch_size * t.sequence_length);
  const double rate = flops_per_token(config.model, t.sequence_length) * tokens / median;
  const double gemm = std::max(before, after);
  fmt::print(out, "step seconds  median {:.4f}  min {:.4f}  max {:.4f}  ({} steps)\n", median,
             seconds.front(), seconds.back(), seconds.size());
  fmt::print(out, "tokens/s      {:.1f}\n", tokens / median);
  fmt::print(out, "GFLOP/s       {:.1f}  (model FLOPs)\n", rate / 1e9);
  fmt::print(out, "GEMM rate     {:.1f}  GFLOP/s before, {:.1f} after, on {} threads\n", before / 1e9,
             after / 1e9, threads * ranks);
  fmt::print(out, "share         {:.1f} %\n", 100 * rate / gemm);
  if (!profile) return;
  // A rank with its threads has the roofs of its part of the machine.
  const double bandwidth = measured_triad_bandwidth(*device, 1.0);
  fmt::print(out, "triad         {:.1f}  GB/s on {} threads\n", bandwidth / 1e9, threads * ranks);
  print_profile(out, measured.lines, steps, std::accumulate(seconds.begin(), seconds.end(), 0.0),
                {gemm / ranks, bandwidth / ranks});
}

}  // namespace triax
