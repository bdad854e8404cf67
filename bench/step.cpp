#include "bench/step.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/device_rate.h"
#include "bench/gemm_rate.h"
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

// Seconds of each counted step, on rank 0.
std::vector<double> time_steps(const RunConfig& config, int steps, int threads) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  run_local_ranks(world_size(config), {}, [&](Communicator& world, int rank) {
    const Backend backend = make_backend(config.training.device, threads, rank);
    Mesh mesh(grid_of(config), world, mesh_needs(config), backend.memory());
    Trainer trainer(config, mesh, *backend.device, *backend.kernels, plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    const auto rows = random_rows(config, mesh.coordinate("dp"), trainer.rows_per_step());
    trainer.load_batch(rows.data());
    for (int s = 0; s <= steps; ++s) {
      world.barrier();
      const auto start = Clock::now();
      trainer.step(s + 1, {});
      backend.device->synchronize();
      world.barrier();
      if (rank == 0 && s > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  });
  return seconds;
}

}  // namespace

void bench_step(std::ostream& out, const RunConfig& config, int steps, int threads) {
  const TrainingConfig& t = config.training;
  const int ranks = world_size(config);
  fmt::print(out, "{}: {:.1f} M parameters, sequence {}, global batch {}, {}, {} compute {} per rank\n",
             config.name, static_cast<double>(parameter_count(config.model)) / 1e6, t.sequence_length,
             t.global_batch_size, to_string(grid_of(config)), threads, threads == 1 ? "thread" : "threads");
  const bool gpu = t.device == "cuda";
  // Of a GPU in the job's precision; ranks that share one are held against all of it.
  const auto measured_rate = [&] {
    if (!gpu) return measured_gemm_rate(*make_cpu_device(threads * ranks), 1.0);
    return measured_product_rate(make_backend(t.device, threads, 0),
                                 t.precision == "bf16" ? DType::bf16 : DType::f32, 1.0);
  };
  const double before = measured_rate();
  std::vector<double> seconds = time_steps(config, steps, threads);
  const double after = measured_rate();
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double tokens = static_cast<double>(t.global_batch_size * t.sequence_length);
  const double rate = flops_per_token(config.model, t.sequence_length) * tokens / median;
  const double gemm = std::max(before, after);
  fmt::print(out, "step seconds  median {:.4f}  min {:.4f}  max {:.4f}  ({} steps)\n", median,
             seconds.front(), seconds.back(), seconds.size());
  fmt::print(out, "tokens/s      {:.1f}\n", tokens / median);
  fmt::print(out, "GFLOP/s       {:.1f}  (model FLOPs)\n", rate / 1e9);
  fmt::print(out, "GEMM rate     {:.1f}  GFLOP/s before, {:.1f} after, on {}\n", before / 1e9, after / 1e9,
             gpu ? "the GPU" : fmt::format("{} threads", threads * ranks));
  fmt::print(out, "share         {:.1f} %\n", 100 * rate / gemm);
}

}  // namespace triax
