#include "engine/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "comm/ledger.h"
#include "comm/local_ranks.h"
#include "core/rng.h"
#include "engine/job.h"
#include "engine/plan.h"
#include "engine/shrink.h"
#include "engine/state.h"
#include "model/gpt.h"
#include "parallel/backend.h"

namespace triax {

namespace {

using Tensors = std::map<std::string, std::vector<float>>;

// One run of a few steps, in logical space.
struct Trial {
  std::vector<double> losses;
  Tensors gradients;  // of the first step
  std::vector<std::string> plan_faults;
  int planned_ranks = 0;
};

// Rows of one step, [global batch, sequence + 1]; the same on every grid.
std::vector<int32_t> batch_of(const RunConfig& config, int64_t step) {
  const RandomStream stream(static_cast<uint64_t>(config.seed), fmt::format("verify batch {}", step));
  std::vector<int32_t> rows(
      static_cast<size_t>(config.training.global_batch_size * (config.training.sequence_length + 1)));
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<int32_t>(stream.below(static_cast<uint64_t>(config.model.vocab_size), i));
  return rows;
}

void put(const std::vector<StatePiece>& pieces, Tensors& out) {
  for (const StatePiece& piece : pieces) {
    auto& tensor = out[piece.name];
    tensor.resize(static_cast<size_t>(piece.global.numel()), std::nanf(""));  // what nobody writes shows
    copy_box(piece.box, piece.data, whole(piece.global), tensor.data());
  }
}

// What one rank does; `mutex` guards the trial.
void run_rank(const RunConfig& config, Communicator& world, Trial& trial, std::mutex& mutex) {
  const int rank = world.rank();
  const Backend backend = make_backend(config.training.device, config.training.threads, rank);
  Mesh mesh(grid_of(config), world, mesh_needs(config), backend.memory());
  const RankPlan plan = plan_rank(config, rank, backend.kernels);
  Trainer trainer(config, mesh, *backend.device, *backend.kernels, plan.scratch_bytes);
  trainer.initialise();
  std::vector<std::string> faults;
  for (int64_t step = 1; step <= config.training.steps; ++step) {
    const std::vector<int32_t> rows = batch_of(config, step);
    trainer.load_batch(rows.data() + mesh.coordinate("dp") * trainer.rows_per_step() *
                                         (config.training.sequence_length + 1));
    trainer.on_gradients([&] {
      if (step > 1) return;
      const std::lock_guard lock(mutex);
      put(gradient_pieces(trainer), trial.gradients);
    });
    world.recorder().clear();
    const StepResult result = trainer.step(step, {});
    for (const std::string& line :
         disagreements(plan.bytes_of_step(result.compared_replicas), world.recorder().ledger()))
      faults.push_back(fmt::format("step {}: {}", step, line));
    if (rank == 0) trial.losses.push_back(result.loss);
  }
  if (trainer.peak_bytes() != plan.peak_bytes)
    faults.push_back(fmt::format("memory: {} bytes planned, {} used", plan.peak_bytes, trainer.peak_bytes()));
  const std::lock_guard lock(mutex);
  if (faults.empty()) ++trial.planned_ranks;
  for (const std::string& fault : faults)
    trial.plan_faults.push_back(fmt::format("rank {}, {}", rank, fault));
}

Trial run_trial(const RunConfig& config) {
  Trial trial;
  std::mutex mutex;
  CommOptions options;
  options.timeout = std::chrono::seconds(120);
  options.check_order = true;
  run_local_ranks(world_size(config), options,
                  [&](Communicator& world, int) { run_rank(config, world, trial, mutex); });
  return trial;
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    sum += d * d;
  }
  return std::isnan(sum) ? INFINITY : std::sqrt(sum);
}

// Relative to the tensor, or to `floor` for one that is next to nothing; equal tensors do not differ, also
// where all are 0.
double relative_error(const std::vector<float>& grid, const std::vector<float>& one, double floor) {
  const double apart = distance(grid, one);
  return apart == 0 ? 0 : apart / std::max(norm(one), floor);
}

std::vector<VerifyReport::Gradient> compare_gradients(const ModelConfig& model, const Tensors& grid,
                                                      const Tensors& one) {
  double squares = 0;
  for (const auto& [name, tensor] : one) squares += norm(tensor) * norm(tensor);
  const double floor = 1e-6 * std::sqrt(squares);
  std::vector<VerifyReport::Gradient> out;
  for (const ParamSpec& spec : logical_parameters(model)) {
    const auto a = grid.find(spec.name), b = one.find(spec.name);
    const bool both = a != grid.end() && b != one.end();
    out.push_back({spec.name, both ? relative_error(a->second, b->second, floor) : INFINITY});
  }
  return out;
}

}  // namespace

VerifyBounds bounds_of(const RunConfig& job) {
  return job.training.precision == "bf16" ? VerifyBounds{0.1, 5e-3} : VerifyBounds{1e-5, 1e-5};
}

std::vector<RunConfig> runs_to_verify(const RunConfig& job) {
  if (job.training.precision == "fp32") return {job};
  RunConfig exact = job;
  exact.training.precision = "fp32";
  return {exact, job};
}

VerifyReport verify(const RunConfig& job) {
  VerifyReport report;
  report.job = shrink(job);
  report.bounds = bounds_of(job);
  const Trial grid = run_trial(report.job), one = run_trial(on_one_rank(report.job));
  report.gradients = compare_gradients(report.job.model, grid.gradients, one.gradients);
  report.losses = grid.losses;
  report.losses_on_one_rank = one.losses;
  report.plan_faults = grid.plan_faults;
  report.planned_ranks = grid.planned_ranks;
  return report;
}

std::vector<VerifyReport::Gradient> VerifyReport::differing() const {
  std::vector<Gradient> out;
  for (const Gradient& g : gradients)
    if (!(g.error <= bounds.gradient)) out.push_back(g);
  return out;
}

std::vector<size_t> VerifyReport::differing_steps() const {
  std::vector<size_t> out;
  for (size_t s = 0; s < losses.size(); ++s)
    if (!(std::fabs(losses[s] / losses_on_one_rank[s] - 1) <= bounds.loss)) out.push_back(s);
  return out;
}

bool VerifyReport::agrees() const {
  return !gradients.empty() && !losses.empty() && differing().empty() && differing_steps().empty() &&
         plan_faults.empty();
}

std::string to_text(const VerifyReport& r) {
  const ModelConfig& m = r.job.model;
  const TrainingConfig& t = r.job.training;
  std::string text = fmt::format(
      "{}: {} layers, hidden {}, {} heads ({} key-value), intermediate {}, vocabulary {}, sequence {}, {} "
      "sequences per step in micro-batches of {}\ngrid {} against one rank, {}, {} steps\n",
      r.job.name, m.num_hidden_layers, m.hidden_size, m.num_attention_heads, m.num_key_value_heads,
      m.intermediate_size, m.vocab_size, t.sequence_length, t.global_batch_size, t.micro_batch_size,
      to_string(grid_of(r.job)), t.precision, r.losses.size());

  const auto differing = r.differing();
  if (differing.empty()) {
    const auto worst = std::max_element(r.gradients.begin(), r.gradients.end(),
                                        [](const auto& a, const auto& b) { return a.error < b.error; });
    text += fmt::format("gradients  {} of {} agree within {:.0e}; the largest distance is {:.2e} ({})\n",
                        r.gradients.size(), r.gradients.size(), r.bounds.gradient, worst->error, worst->name);
  } else {
    text += fmt::format(
        "gradients  DIFFER: the first is {}, by {:.3e} where {:.0e} is allowed; {} of {} differ\n",
        differing[0].name, differing[0].error, r.bounds.gradient, differing.size(), r.gradients.size());
    for (size_t i = 0; i < std::min<size_t>(differing.size(), 12); ++i)
      text += fmt::format("             {:<40} {:.3e}\n", differing[i].name, differing[i].error);
    if (differing.size() > 12) text += fmt::format("             and {} more\n", differing.size() - 12);
  }

  const auto steps = r.differing_steps();
  if (steps.empty()) {
    text += fmt::format("losses     {} of {} steps agree within {:.0e}: {:.6f} .. {:.6f}\n", r.losses.size(),
                        r.losses.size(), r.bounds.loss, r.losses.front(), r.losses.back());
  } else {
    const size_t s = steps[0];
    text += fmt::format(
        "losses     DIFFER: step {} is the first, {:.9f} on the grid and {:.9f} on one rank; {} of "
        "{} steps differ by more than {:.0e}\n",
        s + 1, r.losses[s], r.losses_on_one_rank[s], steps.size(), r.losses.size(), r.bounds.loss);
  }

  const int ranks = world_size(r.job);
  if (r.plan_faults.empty()) {
    text += fmt::format("plan       {} of {} ranks used the memory and sent the bytes that were planned\n",
                        r.planned_ranks, ranks);
  } else {
    text += fmt::format("plan       DIFFERS on {} of {} ranks:\n", ranks - r.planned_ranks, ranks);
    for (size_t i = 0; i < std::min<size_t>(r.plan_faults.size(), 6); ++i)
      text += fmt::format("             {}\n", r.plan_faults[i]);
    if (r.plan_faults.size() > 6) text += fmt::format("             and {} more\n", r.plan_faults.size() - 6);
  }
  return text;
}

}  // namespace triax
