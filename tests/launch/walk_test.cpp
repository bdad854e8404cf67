// A job that is stopped and resumed on one grid after another, and jobs that are killed while they save.

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "job_runs.h"
#include "support/hdf5_file.h"

namespace triax::test {
namespace {

class WalkTest : public JobRuns {
 protected:
  WalkTest()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 48, num_hidden_layers: 5, num_attention_heads: 12, intermediate_size: 96,
        max_position_embeddings: 16}
training: {steps: 24, global_batch_size: 12, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 2, decay_steps: 30}
parallel: {tensor: 1, pipeline: 1, data: 1}
checkpoint: {interval: 1, save_initial: true, keep: 100}
logging: {tensorboard: false}
debug: {dump_batches_at: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]}
)") {}

  struct Hop {
    int tensor, pipeline, data, zero, micro_batch;
    bool bf16 = false, mpi = false, moved = false;
  };
  std::string text(const Hop& h) const {
    std::string keys;
    const auto set = [&](const std::string& key, const std::string& value) {
      keys += " --set " + key + "=" + value;
    };
    set("parallel.tensor", std::to_string(h.tensor));
    set("parallel.pipeline", std::to_string(h.pipeline));
    set("parallel.data", std::to_string(h.data));
    set("parallel.zero_stage", std::to_string(h.zero));
    set("training.micro_batch_size", std::to_string(h.micro_batch));
    if (h.bf16) set("training.precision", "bf16");
    return keys;
  }
  std::vector<int32_t> batch(const std::string& out, int step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d.h5", step);
    return Hdf5File((dir_ / out / "batches" / name).string()).ints("/tokens");
  }

  // Two steps on each grid, each hop in a folder of its own that starts from the hop before.
  void walk(const std::vector<Hop>& hops) {
    const int last = 2 * static_cast<int>(hops.size());
    ASSERT_EQ(triax("whole", "--set training.steps=" + std::to_string(last)), 0) << output("whole");
    const auto whole = metrics("whole");
    double tolerance = 1e-5;
    fs::path from;
    int step = 0;
    for (const Hop& hop : hops) {
      const std::string out = "at-" + std::to_string(step);
      std::string arguments =
          text(hop) + " --accept-changes --set training.steps=" + std::to_string(step + 2);
      if (!from.empty()) {
        if (hop.moved) {
          fs::rename(from, dir_ / "elsewhere");
          from = dir_ / "elsewhere";
        }
        arguments += " --set checkpoint.resume=" + from.string();
      }
      const std::string launcher =
          hop.mpi ? std::string(mpirun) + "-n " + std::to_string(hop.tensor * hop.pipeline * hop.data) + " "
                  : "";
      ASSERT_EQ(triax(out, arguments, launcher), 0) << output(out);
      if (!from.empty()) {  // what it loaded, saved again at once
        const auto before = manifest(from), after = manifest(checkpoint(out, step));
        for (const char* key : {"tensors", "step", "consumed_samples"})
          EXPECT_EQ(after[key], before[key]) << out << text(hop);
      }
      if (hop.bf16) tolerance = 1e-2;
      const auto now = metrics(out);
      for (int s = step + 1; s <= step + 2; ++s) {
        EXPECT_NEAR(now.at(s).first / whole.at(s).first, 1.0, tolerance) << "step " << s << text(hop);
        EXPECT_EQ(batch(out, s), batch("whole", s)) << "step " << s << text(hop);
      }
      step += 2;
      from = checkpoint(out, step);
    }
  }
};

TEST_F(WalkTest, OverFourGrids) {
  walk({{3, 2, 1, 1, 2}, {1, 1, 3, 0, 4}, {2, 3, 2, 1, 1, false, false, true}, {1, 4, 1, 0, 3}});
}

class FullWalkTest : public WalkTest {};

TEST_F(FullWalkTest, OverTwelveGrids) {
  const bool mpi = have_mpirun();
  walk({{1, 1, 1, 1, 3},
        {3, 2, 1, 1, 2, false, mpi},
        {2, 1, 3, 0, 4},
        {1, 4, 2, 1, 1, false, mpi},
        {6, 1, 1, 0, 6, false, false, true},
        {4, 3, 1, 1, 1},
        {1, 2, 6, 1, 1},
        {12, 1, 1, 0, 2},
        {3, 1, 2, 1, 3, true, mpi},
        {2, 2, 3, 1, 2},
        {1, 5, 1, 0, 1, true},
        {2, 3, 2, 1, 2, false, mpi}});
}

/// Jobs that save after every step and are killed at random moments. The run that nobody kills says which
/// hashes each step's checkpoint must have.
class KillTest : public JobRuns {
 protected:
  KillTest()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 96, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 192,
        max_position_embeddings: 16}
training: {steps: 40, global_batch_size: 4, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 2, decay_steps: 1000}
parallel: {tensor: 2, pipeline: 2, data: 1}
checkpoint: {interval: 1, keep: 2}
logging: {tensorboard: false}
)") {}

  static constexpr int steps = 40;

  // Also takes the time of a whole run: machines differ, and so does what else they do.
  std::map<int64_t, nlohmann::json> reference() {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(triax("whole", "--set checkpoint.keep=1000 --set checkpoint.async=false"), 0)
        << output("whole");
    whole_run_ =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    std::map<int64_t, nlohmann::json> hashes;
    for (int64_t step = 1; step <= steps; ++step) hashes[step] = tensors("whole", step);
    return hashes;
  }

  // Kills a run `kills` times; `launch(run)` starts it and `kill(pid)` kills all of it or a part.
  void kill_at_random(int kills, const std::string& launcher, const std::string& victim) {
    const auto expected = reference();
    std::mt19937 random(5);
    int64_t newest = 0;
    int run = 0, useful = 0;
    for (int n = 0; n < kills; ++n) {
      const std::string out = "run-" + std::to_string(run);
      const pid_t child = fork();
      if (child == 0) {
        setpgid(0, 0);
        execl("/bin/sh", "sh", "-c", command(out, "", launcher).c_str(), nullptr);
        _exit(127);
      }
      const auto begin = std::chrono::steady_clock::now();
      // From before the first save to the end of the job.
      const auto longest = whole_run_.count() + (launcher.empty() ? 0 : 2000);
      const auto wait = std::chrono::milliseconds(20 + random() % static_cast<uint64_t>(longest));
      while (std::chrono::steady_clock::now() - begin < wait && waitpid(child, nullptr, WNOHANG) == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (victim.empty())
        ::kill(-child, SIGKILL);
      else
        std::system(victim.c_str());
      waitpid(child, nullptr, 0);

      const fs::path dir = dir_ / out / "checkpoints";
      int64_t found = 0;
      std::error_code none;
      for (const auto& entry : fs::directory_iterator(dir, none))
        if (entry.path().filename().string().rfind("step-", 0) == 0 &&
            fs::exists(entry.path() / "manifest.json"))
          found = std::max(found, manifest(entry.path())["step"].get<int64_t>());
      EXPECT_GE(found, newest) << "the newest checkpoint is gone after kill " << n << "\n" << output(out);
      if (found > 0) {
        EXPECT_EQ(tensors(out, found), expected.at(found)) << "kill " << n;
        EXPECT_EQ(std::system((std::string(TRIAX_BINARY_DIR) + "/triax checkpoint verify " +
                               checkpoint(out, found).string() + " >/dev/null")
                                  .c_str()),
                  0)
            << "kill " << n;
      }
      useful += found > newest;
      newest = found;
      if (newest == steps) ++run, newest = 0;  // it had the time to end
    }
    EXPECT_GT(useful, kills / 10) << "most kills came before a save";
    const std::string out = "run-" + std::to_string(run);
    ASSERT_EQ(triax(out, ""), 0) << output(out);  // and the job goes on to its end as if nothing had been
    EXPECT_EQ(tensors(out, steps), expected.at(steps));
  }

  std::chrono::milliseconds whole_run_{0};
};

TEST_F(KillTest, TheWholeJobTenTimes) {
  kill_at_random(10, "", "");
}

class FullKillTest : public KillTest {};

TEST_F(FullKillTest, TheWholeJobAHundredTimes) {
  kill_at_random(100, "", "");
}

TEST_F(FullKillTest, OneRankThirtyTimes) {
  if (!have_mpirun()) GTEST_SKIP() << "there is no mpirun here";
  // Rank 2 writes down its process number before it becomes the program.
  const std::string pid = (dir_ / "pid").string();
  kill_at_random(30,
                 std::string(mpirun) + "-n 4 sh -c '[ \"$OMPI_COMM_WORLD_RANK\" != 2 ] || echo $$ >" + pid +
                     "; exec \"$@\"' sh ",
                 "kill -9 $(cat " + pid + ") 2>/dev/null; rm -f " + pid);
}

}  // namespace
}  // namespace triax::test
