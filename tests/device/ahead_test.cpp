// Steps that the host does not wait in: enqueued one ahead of the outcome that it looks at, and launched as
// one captured graph. State, numbers and reports are those of a host that waits in every step, on the foreign
// device with TRIAX_FOREIGN_ASYNC, which works beside the host and has the CPU's bits, and on the emulated
// CUDA library, which counts the runtime's calls.

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "support/training.h"

namespace triax::test {
namespace {

RunConfig small_job(const std::string& device) {
  RunConfig c;
  c.model.architecture = Architecture::llama;
  c.model.vocab_size = 90;
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = 2;
  c.model.num_attention_heads = 4;
  c.model.num_key_value_heads = 2;
  c.model.intermediate_size = 48;
  c.model.max_position_embeddings = 16;
  c.model.tie_word_embeddings = false;
  c.model.hidden_dropout = 0.2;
  c.training.device = device;
  c.training.steps = 8;
  c.training.global_batch_size = 4;
  c.training.micro_batch_size = 1;
  c.training.sequence_length = 16;
  c.training.on_nonfinite = "skip";
  c.lr_schedule.name = "cosine";
  c.lr_schedule.warmup_steps = 3;
  c.lr_schedule.decay_steps = 8;
  c.optimizer.lr = 1e-2;
  c.optimizer.clip_grad_norm = 0.5;
  c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 1;
  return c;
}

// The last id stands for an embedding that overflows in dropout: a batch with it is not finite, wherever and
// however often it is computed. Only batches of `bad` have it.
Batches batches_of(const RunConfig& config, const std::set<int64_t>& bad) {
  const auto overflow = static_cast<int32_t>(config.model.vocab_size - 1);
  Batches batches = random_batches(config, config.training.steps, 5);
  for (size_t s = 0; s < batches.size(); ++s) {
    for (int32_t& token : batches[s])
      if (token == overflow) token = 0;
    if (bad.count(static_cast<int64_t>(s) + 1)) std::fill_n(batches[s].begin(), 5, overflow);
  }
  return batches;
}

struct Course {
  std::vector<double> losses, norms, rates;
  std::vector<std::string> reports;  // of skipped steps
  std::string stop;                  // what ended it
  SkippedSteps skipped;
  Tensors weights, exp_avg, exp_avg_sq;
  std::set<std::string> news;  // of the graph
  bool operator==(const Course& o) const {
    return losses == o.losses && norms == o.norms && rates == o.rates && reports == o.reports &&
           stop == o.stop && skipped == o.skipped && weights == o.weights && exp_avg == o.exp_avg &&
           exp_avg_sq == o.exp_avg_sq;
  }
};

// Called by every rank before its step (from 1) is begun.
using Prepare = std::function<void(Trainer& trainer, int64_t step)>;

// Trains on all batches, or until the job stops; `ahead`: with one step enqueued beyond the one that is
// looked at, where the device lets it.
Course run(const RunConfig& config, const Batches& batches, bool ahead, const Prepare& prepare = {}) {
  Course course;
  std::mutex mutex;
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  const ParallelConfig& p = config.parallel;
  run_local_ranks(p.tensor * p.pipeline * p.data, options, [&](Communicator& world, int rank) {
    const Backend backend = make_backend(config.training.device, 1, rank);
    Mesh mesh(grid_of(config), world, mesh_needs(config), backend.memory());
    Trainer trainer(config, mesh, *backend.device, *backend.kernels,
                    plan_rank(config, rank, backend.kernels).scratch_bytes);
    trainer.initialise();
    if (mesh.first_stage()) {
      const auto& table = trainer.params().entries().at(0);
      const int64_t rows = table.box.numel() / config.model.hidden_size, last = config.model.vocab_size - 1;
      if (mesh.coordinate("tp") == p.tensor - 1) {
        const std::vector<float> huge(static_cast<size_t>(config.model.hidden_size), 3e38F);
        const int64_t row = last - (p.tensor - 1) * rows;
        trainer.device().write(trainer.optimizer().master_at(table.offset + row * config.model.hidden_size),
                               huge.data(), huge.size() * sizeof(float));
      }
    }
    trainer.state_loaded();
    const auto take = [&] {
      const StepResult result = trainer.outcome();
      const std::lock_guard lock(mutex);
      if (rank != 0) return;
      course.losses.push_back(result.skipped ? -1 : result.loss);
      course.norms.push_back(result.skipped ? -1 : result.grad_norm);
      course.rates.push_back(result.learning_rate);
      if (result.skipped) course.reports.push_back(result.report);
    };
    try {
      for (size_t s = 0; s < batches.size(); ++s) {
        const auto step = static_cast<int64_t>(s) + 1;
        if (prepare) prepare(trainer, step);
        trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() *
                                                   (config.training.sequence_length + 1));
        trainer.enqueue(step, {});
        EXPECT_EQ(trainer.runs_ahead(step), config.training.device == "cuda");
        {
          const std::lock_guard lock(mutex);
          course.news.insert(trainer.graph_news());
        }
        if (!ahead || trainer.under_way() == 2 || !trainer.runs_ahead(step)) take();
      }
      while (trainer.under_way() > 0) take();
    } catch (const DivergedError& error) {
      const std::lock_guard lock(mutex);
      course.stop = error.what();
    }
    const std::lock_guard lock(mutex);
    course.skipped = trainer.skipped();
    const auto pieces = pieces_to_save(trainer);
    collect(pieces, StateKind::weight, course.weights);
    collect(pieces, StateKind::exp_avg, course.exp_avg);
    collect(pieces, StateKind::exp_avg_sq, course.exp_avg_sq);
  });
  return course;
}

void expect_same(const Course& a, const Course& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.rates, b.rates) << what;
  EXPECT_EQ(a.reports, b.reports) << what;
  EXPECT_EQ(a.stop, b.stop) << what;
  EXPECT_EQ(a.skipped.total, b.skipped.total) << what;
  for (const auto& [name, tensor] : b.weights)
    EXPECT_TRUE(tensor == a.weights.at(name)) << what << ": " << name;
  EXPECT_TRUE(a == b) << what;
}

/// Graphs of the CPU's kernels and messages between thread ranks, beside the host.
class ForeignAhead : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TRIAX_CUDA_LIBRARY", (std::string(TRIAX_BINARY_DIR) + "/lib/triax_cuda_foreign.so").c_str(), 1);
    setenv("TRIAX_FOREIGN_ASYNC", "1", 1);
  }
  // On the CPU, in turn on the device, ahead on the device.
  static Course expect_alike(const RunConfig& config, const Batches& batches, const Prepare& prepare = {}) {
    RunConfig cpu = config;
    cpu.training.device = "cpu";
    Course usual = run(cpu, batches, true, prepare);
    expect_same(run(config, batches, false, prepare), usual, "waiting");
    expect_same(run(config, batches, true, prepare), usual, "ahead");
    return usual;
  }
};

TEST_F(ForeignAhead, OneRankHasTheCpusBits) {
  const RunConfig job = small_job("cuda");
  const Course usual = expect_alike(job, batches_of(job, {}));
  EXPECT_EQ(usual.losses.size(), 8U);
  EXPECT_EQ(usual.skipped.total, 0);
}

TEST_F(ForeignAhead, ThreadRanksHaveTheCpusBits) {
  RunConfig job = small_job("cuda");
  job.parallel.tensor = job.parallel.pipeline = job.parallel.data = 2;
  expect_alike(job, batches_of(job, {}));
}

// Step 3 is enqueued by calls, 6 as a graph; 6 and 7 are skipped in a row, and 8 is enqueued again twice.
TEST_F(ForeignAhead, StepsThatAreNotFiniteAreSkippedAsIfTheHostHadWaited) {
  const RunConfig job = small_job("cuda");
  const Course usual = expect_alike(job, batches_of(job, {3, 6, 7}));
  EXPECT_EQ(usual.skipped.total, 3);
  ASSERT_EQ(usual.reports.size(), 3U);
  EXPECT_NE(usual.reports[0].find("first: the output of embed in micro-batch 0 on rank 0"), std::string::npos)
      << usual.reports[0];
}

TEST_F(ForeignAhead, ThreadRanksSkipAsIfTheHostHadWaited) {
  RunConfig job = small_job("cuda");
  job.parallel.pipeline = job.parallel.data = 2;
  EXPECT_EQ(expect_alike(job, batches_of(job, {1, 4, 8})).skipped.total, 3);
}

// Activations in the gradients' memory: a step that is computed again, or once more behind one that was not
// finite, finds there what the step after it has left.
TEST_F(ForeignAhead, StepsOfOneMicroBatchHaveTheCpusBits) {
  RunConfig job = small_job("cuda");
  const auto check = [](RunConfig config, const std::set<int64_t>& bad) {
    EXPECT_GT(plan_rank(config, 0).lent_bytes, 0U);
    const Course lent = expect_alike(config, batches_of(config, bad));
    EXPECT_EQ(lent.skipped.total, 3);
    config.parallel.schedule = "zb-h1";
    EXPECT_EQ(plan_rank(config, 0).lent_bytes, 0U);
    expect_same(run(config, batches_of(config, bad), true), lent, "with memory of their own");
  };
  job.training.micro_batch_size = job.training.global_batch_size;
  check(job, {3, 6, 7});
  job.training.micro_batch_size /= 2;
  job.parallel.pipeline = job.parallel.data = 2;
  check(job, {1, 4, 8});
}

// The step after the one that ends the job was enqueued and is applied by nobody.
TEST_F(ForeignAhead, AStepThatEndsTheJobIsTheLastToBeSeenInTheWeights) {
  RunConfig job = small_job("cuda");
  job.training.on_nonfinite = "stop";
  const Batches batches = batches_of(job, {5});
  const Course usual = expect_alike(job, batches);
  EXPECT_NE(usual.stop.find("step 5: the loss is "), std::string::npos) << usual.stop;
  const Course four = run(job, Batches(batches.begin(), batches.begin() + 4), true);
  EXPECT_TRUE(usual.weights == four.weights);
  EXPECT_TRUE(usual.exp_avg == four.exp_avg);
}

TEST_F(ForeignAhead, TooManySkippedStepsInARowEndTheJob) {
  RunConfig job = small_job("cuda");
  job.training.max_skipped_steps = 2;
  const Course usual = expect_alike(job, batches_of(job, {4, 5, 6}));
  EXPECT_NE(usual.stop.find("2 steps in a row"), std::string::npos) << usual.stop;
}

// A fault that does not repeat itself: what the step had left is gone where the device has gone on.
TEST_F(ForeignAhead, AFaultThatDoesNotRepeatItselfIsReportedAsOne) {
  const RunConfig job = small_job("cuda");
  int calls = 0;
  const Prepare spoil = [&](Trainer& trainer, int64_t step) {
    if (step == 1) calls = 0;
    trainer.on_own_gradients(step != 4 ? std::function<void(int, int)>() : [&](int first, int) {
      const float nan = std::nanf("");
      if (first == 0 && calls++ == 0)
        trainer.device().write(trainer.params().primary_grad(trainer.params().entries().at(0)).raw(), &nan,
                               sizeof nan);
    });
  };
  const Course waiting = run(job, batches_of(job, {}), false, spoil),
               ahead = run(job, batches_of(job, {}), true, spoil);
  ASSERT_EQ(ahead.reports.size(), 1U);
  EXPECT_NE(waiting.reports[0].find("first: after the sum over ranks, the gradient of embed"),
            std::string::npos)
      << waiting.reports[0];
  EXPECT_NE(ahead.reports[0].find("is finite: this fault does not repeat itself"), std::string::npos)
      << ahead.reports[0];
  EXPECT_NE(ahead.reports[0].find("were overwritten by the step after it"), std::string::npos)
      << ahead.reports[0];
  EXPECT_TRUE(ahead.weights == waiting.weights);
}

TEST_F(ForeignAhead, AStepNeedsABatchOfItsOwn) {
  const RunConfig job = small_job("cuda");
  EXPECT_THROW(run(job, batches_of(job, {}), true,
                   [](Trainer& trainer, int64_t step) {
                     if (step == 2) trainer.enqueue(2, {});
                   }),
               Error);
}

/// The GPU's own calls. An emulated stream does at once what it is given, so that this shows what is enqueued
/// and captured, not what waits for what.
class EmulatedGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = std::string(TRIAX_BINARY_DIR) + "/lib/triax_cuda_emulated.so";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " was not built";
    setenv("TRIAX_CUDA_LIBRARY", path.c_str(), 1);
    void* library = dlopen(path.c_str(), RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    calls = reinterpret_cast<long (*)(const char*)>(dlsym(library, "emulated_cuda_calls"));
    ranges = reinterpret_cast<const char* (*)()>(dlsym(library, "emulated_cuda_ranges"));
    break_capture = reinterpret_cast<void (*)(int)>(dlsym(library, "emulated_cuda_break_capture"));
    refuse = reinterpret_cast<void (*)(const char*)>(dlsym(library, "emulated_cuda_refuse"));
    fail_kernel = reinterpret_cast<void (*)(const char*)>(dlsym(library, "emulated_cuda_fail_kernel"));
    products = reinterpret_cast<const char* (*)()>(dlsym(library, "emulated_cuda_products"));
    ASSERT_TRUE(calls && ranges && break_capture && refuse && fail_kernel && products);
  }
  static RunConfig job(const std::string& graph, const std::string& precision = "fp32") {
    RunConfig config = small_job("cuda");
    config.training.cuda_graph = graph;
    config.training.global_batch_size = 2;  // kernels are slow there
    config.training.precision = precision;
    return config;
  }
  long (*calls)(const char* function) = nullptr;
  const char* (*ranges)() = nullptr;
  void (*break_capture)(int calls) = nullptr;
  void (*refuse)(const char* function) = nullptr;
  void (*fail_kernel)(const char* name) = nullptr;
  const char* (*products)() = nullptr;

  /// What a run says in which `kernel` fails in the step `step`.
  std::string failure(const RunConfig& config, const char* kernel, int64_t step) {
    std::string text;
    try {
      run(config, batches_of(config, {}), true, [&](Trainer&, int64_t now) {
        if (now == step) fail_kernel(kernel);
      });
    } catch (const Error& error) {
      text = error.what();
    }
    fail_kernel(nullptr);
    return text;
  }
};

// Dropout, clipping, the schedule of learning rates, two micro-batches and one, skipped steps, before and
// after the capture, and an evaluation in between.
TEST_F(EmulatedGraph, AReplayedStepHasTheBitsOfAnEnqueuedOne) {
  for (const auto& [precision, sequences] : {std::pair{"fp32", 1}, {"bf16", 1}, {"fp32", 2}}) {
    RunConfig off = job("off", precision), on = job("on", precision);
    off.training.micro_batch_size = on.training.micro_batch_size = sequences;
    EXPECT_EQ(plan_rank(on, 0).lent_bytes > 0, sequences == 2);
    const Batches batches = batches_of(off, {2, 6});
    const Prepare evaluate = [](Trainer& trainer, int64_t step) {
      ExactSum loss;
      if (step == 5 && trainer.under_way() == 0) trainer.evaluate(loss);
    };
    const Course usual = run(off, batches, false, evaluate);
    EXPECT_EQ(usual.skipped.total, 2);
    if (sequences == 2) {
      RunConfig own = off;
      own.parallel.schedule = "zb-h1";
      expect_same(run(own, batches, false, evaluate), usual, "activations with memory of their own");
    }
    expect_same(run(on, batches, false, evaluate), usual, "waiting for each step");
    expect_same(run(on, batches, true), usual, "ahead");
    EXPECT_EQ(run(on, batches, true).news.count("steps are launched as a CUDA graph from now on"), 1U);
    EXPECT_EQ(usual.news.count("steps are not captured as a CUDA graph: training.cuda_graph is off"), 1U);
  }
}

TEST_F(EmulatedGraph, AReplayedStepEnqueuesFiveCallsAllocatesNothingAndNeverWaits) {
  const RunConfig config = job("on");
  const std::vector<const char*> allowed = {"cudaMemcpyAsync", "cudaEventRecord", "cudaGraphLaunch",
                                            "cudaEventQuery"};
  std::vector<long> before;
  const auto count = [&] {
    std::vector<long> counts{calls(nullptr)};
    for (const char* function : allowed) counts.push_back(calls(function));
    return counts;
  };
  const auto check_last_step = [&](Trainer&, int64_t step) {
    const std::vector<long> now = count();
    // From here to there: one step is begun and the outcome of the one before is taken.
    if (step > 5) {
      EXPECT_EQ(now[1] - before[1], 2) << "a copy of its inputs and one of its sums";
      EXPECT_EQ(now[2] - before[2], 2) << "the ends of both";
      EXPECT_EQ(now[3] - before[3], 1);
      EXPECT_EQ(now[0] - before[0], 5 + now[4] - before[4]) << "something else than looks at events";
    }
    before = now;
  };
  run(config, batches_of(config, {}), true, check_last_step);
  EXPECT_GT(calls("kernel"), 100);
}

TEST_F(EmulatedGraph, AProfilerSeesWhatTheStepsDo) {
  RunConfig config = job("off");
  config.training.global_batch_size = 2;
  config.training.steps = 1;
  ranges();
  run(config, batches_of(config, {}), false);
  const std::string seen = ranges();
  for (const char* line :
       {"step, number 1\n zero gradients\n", " forward and backward\n  make_room, micro_batch 0, chunk 0\n",
        "  forward, micro_batch 0, chunk 0\n", "  backward, micro_batch 1, chunk 0\n", " update weights\n",
        " sums over all ranks\n  all_reduce, sums 0\n"})
    EXPECT_NE(seen.find(line), std::string::npos) << line << "is not in\n" << seen;
  EXPECT_EQ(seen.find("-\n"), std::string::npos) << seen;
}

TEST_F(EmulatedGraph, WhereACaptureFailsStepsAreEnqueued) {
  const RunConfig config = job("auto");
  const Batches batches = batches_of(config, {});
  const Course usual = run(job("off"), batches, true);
  // In the step that would be captured, by the thread of the only rank.
  const Prepare breaks = [&](Trainer&, int64_t step) {
    if (step == 3) break_capture(45);
  };
  const Course broken = run(config, batches, true, breaks);
  expect_same(broken, usual, "after a capture that failed");
  bool told = false;
  for (const std::string& news : broken.news)
    told |= news.find("steps are not captured as a CUDA graph: cu") == 0 &&  // the call's name
            news.find("operation failed due to a previous error during capture") != std::string::npos;
  EXPECT_TRUE(told) << fmt::format("{}", fmt::join(broken.news, "; "));
  // The last two calls of a capture, whose error is not to be the next kernel's.
  for (const char* function : {"cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    const Course refused = run(config, batches, true, [&](Trainer&, int64_t step) {
      if (step == 3) refuse(function);
    });
    expect_same(refused, usual, function);
    bool named = false;
    for (const std::string& news : refused.news)
      named |= news.find(std::string("steps are not captured as a CUDA graph: ") + function) == 0;
    EXPECT_TRUE(named) << function << ": " << fmt::format("{}", fmt::join(refused.news, "; "));
  }
  try {
    run(job("on"), batches, true, breaks);
    FAIL() << "training.cuda_graph: on goes on without a graph";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("training.cuda_graph: on: a step can't be captured: "),
              std::string::npos)
        << error.what();
  }
}

// A kernel that fails while it runs is told by the launch after it, which is not to be blamed.
TEST_F(EmulatedGraph, AKernelThatFailsIsAmongThoseThatAreNamed) {
  const std::string enqueued = failure(job("off"), "rotary embedding", 2);
  const size_t list = enqueued.find("(enqueued last: ");
  ASSERT_NE(list, std::string::npos) << enqueued;
  EXPECT_NE(enqueued.find("rotary embedding", list), std::string::npos) << enqueued;
  EXPECT_NE(enqueued.find("an illegal memory access was encountered"), std::string::npos) << enqueued;
  EXPECT_NE(enqueued.find("CUDA_LAUNCH_BLOCKING=1"), std::string::npos) << enqueued;
  EXPECT_EQ(enqueued.find("CUDA refuses the kernel"), std::string::npos) << enqueued;
  const std::string replayed = failure(job("on"), "rotary embedding", 6);
  EXPECT_NE(replayed.find("(enqueued last: "), std::string::npos) << replayed;
  EXPECT_NE(replayed.find("all kernels of a step's graph (training.cuda_graph: off"), std::string::npos)
      << replayed;
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const std::string blocking = failure(job("off"), "rotary embedding", 2);
  unsetenv("CUDA_LAUNCH_BLOCKING");
  EXPECT_EQ(
      blocking.find("rank 0: the kernel rotary embedding has failed: CUDA says an illegal memory access"), 0U)
      << blocking;
}

// cuBLASLt's algorithm is chosen by what it is asked for: where weights lie is not to be in that, or a grid
// would have other bits than another.
TEST_F(EmulatedGraph, TheSameProductsAreAskedForOnOneStageAndOnTwo) {
  RunConfig config = small_job("cuda");
  config.model.hidden_size = 40;
  config.model.num_hidden_layers = 4;
  config.model.intermediate_size = 56;
  config.training.precision = "bf16";
  config.training.steps = 1;
  const Batches batches = batches_of(config, {});
  products();
  run(config, batches, false);
  const std::string one = products();
  EXPECT_NE(one.find(", aligned 16 16 16 16\n"), std::string::npos) << one;
  config.parallel.pipeline = 2;
  run(config, batches, false);
  EXPECT_EQ(products(), one);
  config.parallel.data = 2;
  config.parallel.zero_stage = 0;
  config.parallel.reduce_bucket_size = 4096;
  run(config, batches, false);
  EXPECT_EQ(products(), one);
}

}  // namespace
}  // namespace triax::test
