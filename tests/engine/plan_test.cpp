// The plan comes true: planned bytes are those that a run takes and sends, and equal what can be derived by
// hand.
#include "engine/plan.h"

#include <gtest/gtest.h>

#include <ctime>

#include "engine/job.h"
#include "engine/job_plan.h"
#include "engine/legal.h"
#include "engine/plan_check.h"
#include "support/random.h"
#include "support/sanitizer.h"
#include "support/training.h"

namespace triax::test {
namespace {

RunConfig small_job(Architecture architecture = Architecture::gpt2) {
  RunConfig c;
  c.model.architecture = architecture;
  c.model.vocab_size = 64;
  c.model.hidden_size = 48;
  c.model.num_hidden_layers = 4;
  c.model.num_attention_heads = c.model.num_key_value_heads = 12;
  c.model.intermediate_size = 192;
  c.model.max_position_embeddings = 16;
  c.model.tie_word_embeddings = architecture == Architecture::gpt2;
  c.training.steps = 4;
  c.training.global_batch_size = 12;
  c.training.micro_batch_size = 1;
  c.training.sequence_length = 12;
  c.lr_schedule.warmup_steps = 0;
  c.lr_schedule.decay_steps = 4;
  c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 1;
  return c;
}

bool legal(const RunConfig& c) {
  FieldReport report;
  report.given.insert("model.num_key_value_heads");
  check_legal(c, 0, "", report);
  return report.problems.empty();
}

template <class T>
T any_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.below(static_cast<int64_t>(values.size()))];
}

// Any value of any key that changes memory or messages, as long as the whole is legal.
RunConfig random_job(Random& random) {
  for (;;) {
    RunConfig c = small_job(any_of(random, {Architecture::gpt2, Architecture::llama}));
    c.model.vocab_size = any_of(random, {61, 64, 100});
    c.model.num_hidden_layers = any_of(random, {2, 4, 5, 8});
    if (c.model.architecture == Architecture::llama)
      c.model.num_key_value_heads = any_of(random, {1, 2, 4, 12});
    c.model.tie_word_embeddings = random.below(2) != 0;
    c.parallel.tensor = any_of(random, {1, 2, 4});
    c.parallel.pipeline = any_of(random, {1, 2, 3});
    c.parallel.data = any_of(random, {1, 2});
    c.parallel.schedule = any_of<std::string>(random, {"gpipe", "1f1b", "interleaved", "zb-h1"});
    c.parallel.virtual_stages = c.parallel.schedule == "interleaved" ? 2 : 1;
    c.parallel.zero_stage = any_of(random, {0, 1});
    c.parallel.zero_shard_ranks = any_of(random, {0, 1});
    c.parallel.sequence_parallel = random.below(2) != 0;
    c.parallel.overlap_comm = random.below(2) != 0;
    c.parallel.reduce_bucket_size = any_of<int64_t>(random, {1, 3000, 4 << 20});
    c.training.recompute = any_of<std::string>(random, {"none", "selective", "full"});
    c.training.partition_activations = random.below(2) != 0;
    c.training.precision = any_of<std::string>(random, {"fp32", "bf16"});
    c.training.micro_batch_size = any_of(random, {1, 2, 3});
    if (legal(c)) return c;
  }
}

std::string name_of(const RunConfig& c) {
  return to_json(c);
}

/// What was asked of a device, counted beside it: the measurement that a plan is held against.
class CountingDevice final : public Device {
 public:
  CountingDevice() : device_(make_cpu_device(1)) {}
  DeviceKind kind() const override { return device_->kind(); }
  void* allocate(size_t bytes, std::string_view purpose) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
    return device_->allocate(bytes, purpose);
  }
  void deallocate(void* block, size_t bytes) override {
    now_ -= bytes;
    device_->deallocate(block, bytes);
  }
  void* allocate_host(size_t bytes, std::string_view purpose) override { return allocate(bytes, purpose); }
  void deallocate_host(void* block, size_t bytes) override { deallocate(block, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { device_->copy(to, from, bytes); }
  void copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes,
                 int64_t rows) override {
    device_->copy_rows(to, to_stride, from, from_stride, bytes, rows);
  }
  void write(void* to, const void* from, size_t bytes) override { device_->write(to, from, bytes); }
  void read(void* to, const void* from, size_t bytes) override { device_->read(to, from, bytes); }
  void fill_zero(void* to, size_t bytes) override { device_->fill_zero(to, bytes); }
  void synchronize() override { device_->synchronize(); }
  ThreadPool& threads() override { return device_->threads(); }
  size_t peak() const { return peak_; }

 private:
  std::unique_ptr<Device> device_;
  size_t now_ = 0, peak_ = 0;
};

// Runs two steps of a job and holds every rank to its plan.
void expect_kept(const RunConfig& config) {
  const Batches batches = random_batches(config, 2, 3);
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  run_local_ranks(world_size(config), options, [&](Communicator& world, int rank) {
    CountingDevice device;
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    const RankPlan plan = plan_rank(config, rank);
    Trainer trainer(config, mesh, device, cpu_kernels(), plan.scratch_bytes);
    trainer.initialise();
    PlanCheck check(plan, world.recorder());
    for (size_t s = 0; s < batches.size(); ++s) {
      trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() *
                                                 (config.training.sequence_length + 1));
      check.begin_step();
      trainer.step(static_cast<int64_t>(s) + 1, {});
      check.end_step(static_cast<int64_t>(s) + 1);
    }
    EXPECT_EQ(check.faults(trainer.peak_bytes()), std::vector<std::string>()) << name_of(config);
    EXPECT_EQ(device.peak(), plan.peak_bytes) << "rank " << rank << " of " << name_of(config);
  });
}

TEST(Plan, ComesTrueToTheByteOnTwentyRandomJobs) {
  Random random(2026);
  const int jobs = sanitized ? 4 : 20;
  for (int i = 0; i < jobs; ++i) expect_kept(random_job(random));
}

// One rank stands for its stage.
TEST(Plan, IsTheSameForAllRanksOfAStage) {
  Random random(7);
  for (int i = 0; i < 8; ++i) {
    const RunConfig config = random_job(random);
    const Grid grid = grid_of(config);
    for (int rank = 0; rank < grid.size(); ++rank) {
      const RankPlan mine = plan_rank(config, rank);
      const RankPlan first = plan_rank(config, grid.with(0, "pp", grid.coordinate(rank, "pp")));
      EXPECT_EQ(mine.peak_bytes, first.peak_bytes) << name_of(config);
      EXPECT_EQ(disagreements(first.bytes_per_step, mine.bytes_per_step), std::vector<std::string>());
    }
  }
}

TEST(PlanCheck, NamesWhatWasNotPlanned) {
  RankPlan plan = plan_rank(small_job(), 0);
  Recorder recorder;
  PlanCheck check(plan, recorder);
  check.begin_step();
  check.end_step(1);  // nothing was sent, but a sum over all ranks is planned
  const auto faults = check.faults(plan.peak_bytes + 4);
  ASSERT_GE(faults.size(), 2u);
  EXPECT_EQ(faults[0].rfind("step 1: ", 0), 0u) << faults[0];
  EXPECT_NE(faults.back().find("peak memory"), std::string::npos);
}

TEST(Plan, FlopsAreThoseOfTheMatrices) {
  const RunConfig c = small_job();
  const RankPlan plan = plan_rank(c, 0);
  const double tokens = 12 * 12, h = 48, f = 192, layers = 4, vocabulary = 64;
  const double matrices = layers * (4 * h * h + 2 * h * f) + vocabulary * h;
  const double pairs = 12 * 12 * 12 * 13 / 2.0;  // sequences, heads, causal pairs
  EXPECT_DOUBLE_EQ(plan.flops(), 6 * matrices * tokens + layers * (4 + 10) * pairs * (h / 12));
}

TEST(Plan, ListsWeightsAndSlotsThatAddUp) {
  for (const RankPlan& rank : plan_job([] {
                                RunConfig c = small_job();
                                c.parallel.tensor = 2;
                                c.parallel.pipeline = 2;
                                return c;
                              }())
                                  .stages) {
    size_t weights = 0;
    for (const PlannedTensors& t : rank.weights) weights += t.bytes;
    EXPECT_LE(weights, rank.memory[0].bytes);
    EXPECT_GT(weights, rank.memory[0].bytes * 9 / 10);  // all but padding between tensors
    size_t slot = 0;
    for (const PlannedTensors& t : rank.slot_tensors.at(0)) slot += t.bytes;
    EXPECT_LE(slot, rank.slot_bytes);
    EXPECT_GT(slot, rank.slot_bytes * 9 / 10);
  }
}

// 4096 x 16384 in bf16 is 128 MiB, forty of them are 5 GiB; in fp32 twice that.
TEST(Plan, FortyLargeMatrices) {
  RunConfig c = small_job();
  c.model.hidden_size = 4096;
  c.model.intermediate_size = 16384;
  c.model.num_attention_heads = c.model.num_key_value_heads = 32;
  c.model.num_hidden_layers = 40;
  for (const char* precision : {"fp32", "bf16"}) {
    c.training.precision = precision;
    if (!legal(c)) continue;
    const size_t width = c.training.precision == "bf16" ? 2 : 4;
    for (const PlannedTensors& t : plan_rank(c, 0).weights) {
      if (t.name != "layers.*.mlp.up.weight") continue;
      EXPECT_EQ(t.shape, (Shape{16384, 4096}));
      EXPECT_EQ(t.count, 40);
      EXPECT_EQ(t.bytes, width * 40 * 4096 * 16384);
      EXPECT_EQ(human_bytes(static_cast<double>(t.bytes)), width == 2 ? "5.0 GiB" : "10.0 GiB");
      EXPECT_EQ(human_bytes(static_cast<double>(t.bytes) / 40), width == 2 ? "128.0 MiB" : "256.0 MiB");
    }
  }
}

TEST(Plan, OfThousandsOfRanksTakesNoTimeAndNoMemory) {
  if (thread_sanitizer) GTEST_SKIP() << "timed without it";
  // The second is the program's; with a sanitizer a busy machine took 1.1.
  const double seconds = sanitized ? 4 : 1;
  RunConfig c = small_job();
  c.model.vocab_size = 50257;
  c.model.hidden_size = 12288;
  c.model.intermediate_size = 49152;
  c.model.num_attention_heads = c.model.num_key_value_heads = 96;
  c.model.num_hidden_layers = 96;
  c.model.max_position_embeddings = c.training.sequence_length = 2048;
  c.training.global_batch_size = 2048;
  c.parallel.tensor = 8;
  for (const int pipeline : {1, 16, 32}) {
    c.parallel.pipeline = pipeline;
    c.parallel.data = 8192 / 8 / pipeline;
    const std::clock_t start = std::clock();
    const JobPlan plan = plan_job(c);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, seconds) << pipeline;
    EXPECT_GT(plan.peak_bytes(), size_t{1} << 30);
  }
}

}  // namespace
}  // namespace triax::test
