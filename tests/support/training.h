#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/local_ranks.h"
#include "core/fields.h"
#include "core/rng.h"
#include "engine/plan.h"
#include "engine/state.h"
#include "model/gpt.h"
#include "parallel/backend.h"

namespace triax::test {

using Tensors = std::map<std::string, std::vector<float>>;

/// What a few steps of training came to, in logical space.
struct TrainingRecord {
  std::vector<double> losses, norms;
  double evaluation = 0;  // sum of the last batch's token losses after the last step
  Tensors first_gradients, weights, exp_avg, exp_avg_sq;
  size_t planned_peak = 0, measured_peak = 0;  // of the last rank to end
  size_t scratch = 0;                          // of the same
  // Its device's memory, where that is not the host's: as planned, and the most that was allocated.
  size_t planned_on_device = 0, most_on_device = 0;
  bool operator==(const TrainingRecord& o) const {
    return losses == o.losses && norms == o.norms && evaluation == o.evaluation &&
           first_gradients == o.first_gradients && weights == o.weights;
  }
};

/// One batch per step: [global_batch, sequence + 1].
using Batches = std::vector<std::vector<int32_t>>;

inline Batches random_batches(const RunConfig& config, int64_t steps, uint64_t seed) {
  const RandomStream stream(seed, "test batches");
  Batches batches(static_cast<size_t>(steps));
  uint64_t n = 0;
  for (auto& batch : batches) {
    batch.resize(
        static_cast<size_t>(config.training.global_batch_size * (config.training.sequence_length + 1)));
    for (int32_t& token : batch) token = static_cast<int32_t>(stream.below(config.model.vocab_size, n++));
  }
  return batches;
}

/// Puts pieces of all ranks into whole tensors.
inline void collect(const std::vector<StatePiece>& pieces, StateKind kind, Tensors& out) {
  for (const StatePiece& piece : pieces) {
    if (piece.kind != kind) continue;
    auto& tensor = out[piece.name];
    tensor.resize(static_cast<size_t>(piece.global.numel()), std::nanf(""));
    copy_box(piece.box, piece.data, whole(piece.global), tensor.data());
  }
}

/// Trains on the job's grid with ranks as threads, from the seed's initial weights or from `initial`, with
/// `kernels` instead of the device's own.
inline TrainingRecord train(const RunConfig& config, const Batches& batches, const Tensors& initial = {},
                            int threads = 1, const Kernels* kernels = nullptr) {
  TrainingRecord record;
  std::mutex mutex;
  const ParallelConfig& p = config.parallel;
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  options.check_order = true;
  run_local_ranks(p.tensor * p.pipeline * p.data, options, [&](Communicator& world, int rank) {
    const Backend backend = make_backend(config.training.device, threads, rank);
    Mesh mesh(grid_of(config), world, mesh_needs(config), backend.memory());
    const Kernels& used = kernels ? *kernels : *backend.kernels;
    const RankPlan plan = plan_rank(config, rank, &used);
    Trainer trainer(config, mesh, *backend.device, used, plan.scratch_bytes);
    trainer.initialise();
    if (!initial.empty())
      for (const StatePiece& piece : pieces_to_load(trainer, true))
        copy_box(whole(piece.global), initial.at(piece.name).data(), piece.box, piece.data);
    trainer.state_loaded();
    const int64_t row = config.training.sequence_length + 1;
    for (size_t s = 0; s < batches.size(); ++s) {
      trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() * row);
      trainer.on_gradients([&] {
        if (s > 0) return;
        const std::lock_guard lock(mutex);
        collect(gradient_pieces(trainer), StateKind::weight, record.first_gradients);
      });
      const StepResult result = trainer.step(static_cast<int64_t>(s) + 1, {});
      if (rank == 0) {
        record.losses.push_back(result.loss);
        record.norms.push_back(result.grad_norm);
      }
    }
    ExactSum evaluation;
    trainer.evaluate(evaluation);
    const std::lock_guard lock(mutex);
    record.evaluation = evaluation.value();
    const auto pieces = pieces_to_save(trainer);
    collect(pieces, StateKind::weight, record.weights);
    collect(pieces, StateKind::exp_avg, record.exp_avg);
    collect(pieces, StateKind::exp_avg_sq, record.exp_avg_sq);
    record.scratch = plan.scratch_bytes;
    record.planned_peak = plan.peak_bytes;
    record.measured_peak = trainer.peak_bytes();
    if (const auto use = backend.device->memory_use()) {
      record.planned_on_device = plan.device_bytes();
      record.most_on_device = use->most;
    }
  });
  return record;
}

inline double norm(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum);
}

/// DESIGN section 7: norm(a - b) / max(norm(b), 1e-6 * global gradient norm), the worst over all parameters.
inline double gradient_error(const Tensors& a, const Tensors& b, std::string* worst = nullptr) {
  double global = 0, error = 0;
  for (const auto& [name, tensor] : b) global += norm(tensor) * norm(tensor);
  global = std::sqrt(global);
  if (a.size() != b.size()) return INFINITY;
  for (const auto& [name, tensor] : b) {
    const auto found = a.find(name);
    if (found == a.end()) return INFINITY;
    const double e = distance(found->second, tensor) / std::max(norm(tensor), 1e-6 * global);
    if (!(e <= error)) {
      error = e;
      if (worst) *worst = name;
    }
  }
  return error;
}

/// DESIGN section 7, first row: a grid against one rank.
inline void expect_close(const TrainingRecord& grid, const TrainingRecord& one, const std::string& what,
                         double gradient_bound = 1e-5, double loss_bound = 1e-5) {
  std::string worst;
  EXPECT_LT(gradient_error(grid.first_gradients, one.first_gradients, &worst), gradient_bound)
      << what << ": " << worst;
  ASSERT_EQ(grid.losses.size(), one.losses.size());
  for (size_t s = 0; s < one.losses.size(); ++s)
    EXPECT_NEAR(grid.losses[s] / one.losses[s], 1.0, loss_bound) << what << ", step " << s + 1;
}

/// What must not change a bit.
inline void expect_identical(const TrainingRecord& a, const TrainingRecord& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.evaluation, b.evaluation) << what;
  for (const auto& [name, tensor] : b.first_gradients)
    EXPECT_TRUE(tensor == a.first_gradients.at(name)) << what << ": gradient of " << name;
  for (const auto& [name, tensor] : b.weights)
    EXPECT_TRUE(tensor == a.weights.at(name)) << what << ": " << name;
  for (const auto& [name, tensor] : b.exp_avg_sq)
    EXPECT_TRUE(tensor == a.exp_avg_sq.at(name)) << what << ": exp_avg_sq of " << name;
}

}  // namespace triax::test
