// A step whose loss or norm is not finite changes nothing anywhere, and the report names where that began.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "engine/job.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr const char* spoilt = "layers.1.mlp.up.weight";

RunConfig job(int tensor, int pipeline, int data, int zero = 1, bool overlap = true) {
  RunConfig config = small_job(Architecture::gpt2, 6);
  config.model.num_hidden_layers = 2;
  config.lr_schedule.name = "constant";
  config.lr_schedule.warmup_steps = 0;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.zero_stage = zero;
  config.parallel.overlap_comm = overlap;
  config.parallel.reduce_bucket_size = 4000;  // a few buckets per layer
  return config;
}

// All of a rank's state, bit for bit.
std::vector<float> state_of(Trainer& trainer) {
  const Tensor weights = trainer.params().weights();
  std::vector<float> state(weights.f32(), weights.f32() + weights.numel());
  for (const auto& piece : trainer.optimizer().updated().pieces())
    for (float* moment :
         {trainer.optimizer().exp_avg_at(piece.begin), trainer.optimizer().exp_avg_sq_at(piece.begin)})
      state.insert(state.end(), moment, moment + (piece.end - piece.begin));
  return state;
}

// What a rank does to its trainer before a step.
using Prepare = std::function<void(Trainer& trainer, int rank, int64_t step)>;

struct Course {
  std::vector<std::string> stops;    // by rank: what DivergedError said
  std::vector<std::string> reports;  // of skipped steps, from rank 0
  TrainingRecord record;
  bool untouched = true;  // no rank's state changed in a step that was not finite
};

// Trains on all batches, or until the job stops.
Course run(const RunConfig& config, const Batches& batches, const Prepare& prepare) {
  Course course;
  const int ranks = config.parallel.tensor * config.parallel.pipeline * config.parallel.data;
  course.stops.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  options.check_order = true;
  run_local_ranks(ranks, options, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    for (size_t s = 0; s < batches.size(); ++s) {
      trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() *
                                                 (config.training.sequence_length + 1));
      prepare(trainer, rank, static_cast<int64_t>(s) + 1);
      const std::vector<float> before = state_of(trainer);
      bool stopped = false, finite = true;
      try {
        const StepResult result = trainer.step(static_cast<int64_t>(s) + 1, {});
        finite = !result.skipped;
        const std::lock_guard lock(mutex);
        if (rank == 0 && result.skipped) course.reports.push_back(result.report);
        if (rank == 0) course.record.losses.push_back(result.skipped ? 0 : result.loss);
      } catch (const DivergedError& error) {
        const std::lock_guard lock(mutex);
        course.stops[static_cast<size_t>(rank)] = error.what();
        stopped = true;
        finite = false;
      }
      const std::vector<float> after = state_of(trainer);
      const std::lock_guard lock(mutex);
      if (!finite && std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) != 0)
        course.untouched = false;
      if (stopped) break;
    }
    const std::lock_guard lock(mutex);
    const auto pieces = pieces_to_save(trainer);
    collect(pieces, StateKind::weight, course.record.weights);
    collect(pieces, StateKind::exp_avg, course.record.exp_avg);
    collect(pieces, StateKind::exp_avg_sq, course.record.exp_avg_sq);
  });
  return course;
}

// Puts NaN into one element of a gradient on `rank`, before it is summed with anyone's; returns where it
// went.
struct Spoil {
  int rank;
  std::set<int64_t> steps{2};
  bool again = true;              // the replay sees it too
  bool others_reduce_it = false;  // not an element that this rank itself reduces
  std::string name = spoilt;
  std::string index{};  // of the element, on `rank`
  int times = 0;

  void operator()(Trainer& trainer, int at, int64_t step) {
    if (at != rank) return;
    if (!steps.count(step)) return trainer.on_own_gradients(nullptr);
    times = 0;
    trainer.on_own_gradients([this, &trainer](int first, int end) {
      for (int i = first; i < end; ++i) {
        const auto& entry = trainer.params().entries()[static_cast<size_t>(i)];
        if (entry.spec.name != name || (times++ > 0 && !again)) continue;
        int64_t position = 5;
        if (others_reduce_it)
          for (const auto& piece : trainer.optimizer().partition().pieces())
            if (piece.entry == i)
              position = piece.first_in_box > 0 ? 0 : piece.first_in_box + piece.end - piece.begin;
        ASSERT_LT(position, entry.box.numel());
        const Shape element = index_of(entry.box, position);
        index = fmt::format("[{}]", fmt::join(element, ", "));
        trainer.params().primary_grad(entry).f32()[position] = nan;
      }
    });
  }
};

TEST(Nonfinite, NanInOneGradientOfOneRankIsAppliedByNobody) {
  const RunConfig grids[] = {job(1, 1, 1), job(2, 2, 2), job(2, 1, 2, 1, false), job(1, 1, 3, 0),
                             job(1, 2, 2, 0)};
  for (const RunConfig& config : grids) {
    const Batches batches = random_batches(config, 3, 3);
    Spoil spoil{world_size(config) - 1};
    const Course course = run(config, batches, std::ref(spoil));
    EXPECT_TRUE(course.untouched);
    for (const std::string& stop : course.stops) EXPECT_EQ(stop, course.stops[0]);
    EXPECT_NE(course.stops[0].find("step 2: the loss is "), std::string::npos) << course.stops[0];
    EXPECT_NE(
        course.stops[0].find(fmt::format("first: the gradient of {} on rank {}: 1 of ", spoilt, spoil.rank)),
        std::string::npos)
        << course.stops[0];
    EXPECT_NE(course.stops[0].find(fmt::format("the first, {}, is nan", spoil.index)), std::string::npos)
        << course.stops[0];
    EXPECT_NE(course.stops[0].find("training.on_nonfinite: skip"), std::string::npos);
  }
}

// The gradient of a tied table's look-ups lies apart from that of its products, and here in slots.
TEST(Nonfinite, NanInALookedUpRow) {
  RunConfig config = job(2, 1, 2);
  config.model.vocab_size = 161;  // 81 rows on a tensor rank, 72 tokens on a data rank
  std::string index;
  const auto spoil = [&](Trainer& trainer, int rank, int64_t) {
    if (rank != 3) return;
    trainer.on_own_gradients([&](int first, int) {
      const auto lookups = trainer.params().lookups_apart();
      ASSERT_TRUE(lookups && lookups->by_slot);
      const int64_t slot = 2, column = 7, width = lookups->grad[1];
      lookups->grad.f32()[slot * width + column] = nan;
      if (first == 0) index = fmt::format("[{}, {}]", lookups->slot_ids.i32()[slot], column);
    });
  };
  const Course course = run(config, random_batches(config, 1, 3), spoil);
  EXPECT_TRUE(course.untouched);
  EXPECT_NE(course.stops[0].find("first: the gradient of embed.tokens.weight on rank 3: 1 of 3840"),
            std::string::npos)
      << course.stops[0];
  EXPECT_NE(course.stops[0].find(fmt::format("the first, {}, is nan", index)), std::string::npos)
      << course.stops[0];
}

// Each tensor rank has the gradient of a norm, one of them counts it in the sum, and all would use their own.
TEST(Nonfinite, NanInACopyThatDoesNotCount) {
  const RunConfig config = job(2, 1, 2);
  Spoil spoil{.rank = 3, .name = "layers.0.mlp_norm.weight"};
  const Course course = run(config, random_batches(config, 3, 3), std::ref(spoil));
  EXPECT_TRUE(course.untouched);
  EXPECT_NE(course.stops[0].find("first: the gradient of layers.0.mlp_norm.weight on rank 3: 1 of 48"),
            std::string::npos)
      << course.stops[0];
}

// The step that is computed again is finite: what the ranks still have tells whose gradient it was.
TEST(Nonfinite, WhatDoesNotRepeatItself) {
  const RunConfig config = job(2, 1, 2);
  Spoil spoil{.rank = 3, .again = false, .others_reduce_it = true};
  const std::string stop = run(config, random_batches(config, 3, 3), std::ref(spoil)).stops[0];
  EXPECT_NE(stop.find(fmt::format(
                "first: before the sum over data ranks, the gradient of {} on rank 3: 1 of ", spoilt)),
            std::string::npos)
      << stop;
  EXPECT_NE(
      stop.find(fmt::format("then: after the sum over ranks, the gradient of {} on rank 1: 1 of ", spoilt)),
      std::string::npos)
      << stop;
  EXPECT_NE(stop.find(fmt::format("the first, {}, is nan", spoil.index)), std::string::npos) << stop;
  EXPECT_NE(stop.find("does not repeat itself"), std::string::npos) << stop;
}

TEST(Nonfinite, InfinityInAWeightStopsAlsoAJobThatSkips) {
  RunConfig config = job(2, 2, 1);
  config.training.on_nonfinite = "skip";
  const Course course =
      run(config, random_batches(config, 2, 3), [](Trainer& trainer, int rank, int64_t step) {
        if (rank != 3 || step != 2) return;
        for (const auto& entry : trainer.params().entries())
          if (entry.spec.name == spoilt)  // [96, 48] cut by rows: tensor rank 1 begins at row 48
            trainer.params().weights().f32()[entry.offset + 2 * 48 + 7] =
                -std::numeric_limits<float>::infinity();
      });
  EXPECT_TRUE(course.untouched);
  EXPECT_NE(
      course.stops[0].find("first: the weight layers.1.mlp.up.weight on rank 3: 1 of 2304 elements is not "
                           "finite; the first, [50, 7], is -inf"),
      std::string::npos)
      << course.stops[0];
  EXPECT_NE(course.stops[0].find("skipping would not help"), std::string::npos) << course.stops[0];
}

// A token whose embedding is finite but too large for the first norm, in one place of one sequence.
TEST(Nonfinite, TheFirstActivationIsNamedWithItsSequence) {
  RunConfig config = job(2, 2, 2);
  config.model.tie_word_embeddings = false;
  const int64_t row = config.training.sequence_length + 1;
  Batches batches = random_batches(config, 1, 3);
  const int32_t token = 60;
  for (int32_t& t : batches[0])
    if (t == token) t = 1;
  batches[0][static_cast<size_t>(8 * row + 3)] = token;
  const Course course = run(config, batches, [&](Trainer& trainer, int, int64_t) {
    for (const auto& entry : trainer.params().entries()) {
      if (entry.spec.name != "embed.tokens.weight") continue;
      const int64_t mine = token - entry.box.offset[0];
      if (mine < 0 || mine >= entry.box.extent[0]) continue;
      for (int64_t i = 0; i < 48; ++i) trainer.params().weights().f32()[entry.offset + mine * 48 + i] = 3e38F;
    }
  });
  // Sequence 8 is the third micro-batch of data rank 1, whose first stage is ranks 2 and 3.
  EXPECT_NE(course.stops[0].find("first: the output of layers.0 in micro-batch 2 on ranks 2, 3: "),
            std::string::npos)
      << course.stops[0];
  EXPECT_NE(course.stops[0].find("of sequence 8 of the step's batch, is nan"), std::string::npos)
      << course.stops[0];
  EXPECT_NE(course.stops[0].find("then: the loss of micro-batch 2"), std::string::npos) << course.stops[0];
}

TEST(Nonfinite, ALearningRateThatIsFarTooLarge) {
  RunConfig config = job(1, 2, 2);
  config.optimizer.lr = 1e30;
  const Course course = run(config, random_batches(config, 4, 3), [](Trainer&, int, int64_t) {});
  EXPECT_TRUE(course.untouched);
  EXPECT_NE(course.stops[0].find("first: the output of "), std::string::npos) << course.stops[0];
  EXPECT_NE(course.stops[0].find("smaller optimizer.lr"), std::string::npos) << course.stops[0];
}

// Skipping is as if the step's batch had not been there: AdamW's correction counts updates, not steps.
TEST(Nonfinite, SkippedStepsAreAsIfTheyHadNotBeen) {
  RunConfig config = job(2, 1, 2);
  config.training.on_nonfinite = "skip";
  const Batches batches = random_batches(config, 5, 4);
  Spoil spoil{.rank = 3, .steps = {2, 3}};
  const Course skipped = run(config, batches, std::ref(spoil));
  EXPECT_EQ(skipped.reports.size(), 2U);
  EXPECT_TRUE(skipped.untouched);
  const TrainingRecord without = train(config, {batches[0], batches[3], batches[4]});
  EXPECT_EQ(skipped.record.losses[3], without.losses[1]);
  EXPECT_EQ(skipped.record.weights, without.weights);
  EXPECT_EQ(skipped.record.exp_avg_sq, without.exp_avg_sq);

  for (RunConfig other : {job(2, 2, 2), job(2, 1, 2, 0), job(2, 1, 2, 1, false)}) {
    other.training.on_nonfinite = "skip";
    Spoil last{.rank = world_size(other) - 1, .steps = {2, 3}};
    const Course course = run(other, batches, std::ref(last));
    EXPECT_EQ(course.record.losses, skipped.record.losses);
    EXPECT_EQ(course.record.weights, skipped.record.weights);
    EXPECT_EQ(course.record.exp_avg_sq, skipped.record.exp_avg_sq);
  }
}

// In a step of one micro-batch activations lie in the gradients' memory, also when the search for the cause
// computes it again; under zb-h1 they have their own.
TEST(Nonfinite, LentMemoryIsSearchedAndSkippedLikeOnesOwn) {
  RunConfig config = job(2, 1, 2);
  config.training.micro_batch_size = 6;
  const Batches batches = random_batches(config, 4, 4);
  for (const char* then : {"skip", "stop"}) {
    config.training.on_nonfinite = then;
    std::vector<Course> courses;
    for (const char* schedule : {"1f1b", "zb-h1"}) {
      config.parallel.schedule = schedule;
      EXPECT_EQ(plan_rank(config, 0).lent_bytes > 0, schedule == std::string("1f1b"));
      Spoil spoil{.rank = 3, .steps = {2}};
      courses.push_back(run(config, batches, std::ref(spoil)));
    }
    EXPECT_TRUE(courses[0].untouched);
    EXPECT_EQ(courses[0].reports.size(), then == std::string("skip") ? 1U : 0U);
    EXPECT_EQ(courses[0].reports, courses[1].reports);
    EXPECT_EQ(courses[0].stops, courses[1].stops);
    EXPECT_EQ(courses[0].record.losses, courses[1].record.losses);
    EXPECT_TRUE(courses[0].record.weights == courses[1].record.weights);
  }
}

TEST(Nonfinite, SkippingHasALimitInARow) {
  RunConfig config = job(1, 1, 2);
  config.training.on_nonfinite = "skip";
  config.training.max_skipped_steps = 2;
  Spoil spoil{.rank = 1, .steps = {1, 2, 4, 5, 6}};
  const Course course = run(config, random_batches(config, 6, 4), std::ref(spoil));
  EXPECT_EQ(course.reports.size(), 4U);
  EXPECT_NE(course.stops[1].find("step 6: "), std::string::npos) << course.stops[1];
  EXPECT_NE(course.stops[1].find("more than training.max_skipped_steps: 2 steps in a row"),
            std::string::npos);
}

}  // namespace
}  // namespace triax::test
