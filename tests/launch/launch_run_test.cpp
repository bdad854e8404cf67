// `triax launch` on this machine: signals, a killed rank, restarts, a launcher that dies.
#include <fcntl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "job_runs.h"

namespace triax::test {
namespace {

using namespace std::chrono_literals;

class LaunchRunTest : public JobRuns {
 protected:
  LaunchRunTest()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 32,
        max_position_embeddings: 16}
training: {steps: 100000, global_batch_size: 4, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
lr_schedule: {decay_steps: 100}
parallel: {tensor: 1, pipeline: 1, data: 2}
checkpoint: {interval: 1000000}
logging: {tensorboard: false}
)") {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  }
  void SetUp() override {
    if (!have_mpirun()) GTEST_SKIP() << "there is no mpirun here";
  }
  void TearDown() override {
    if (launcher_ > 0) kill(launcher_, SIGKILL);
    EXPECT_EQ(ranks_left(10s), 0U) << "ranks outlived the job";
  }

  // Starts the launcher on run folder `out`.
  void start(const std::string& out, const std::string& arguments) {
    out_ = out;
    launcher_ = fork();
    if (launcher_ != 0) return;
    const std::string line = "cd " + dir_.string() + " && exec " + program_ +
                             " launch job.yaml --bind none " + arguments +
                             " --set output_dir=" + (dir_ / out).string() + " >" + out + ".out 2>&1";
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  int finish() {
    int status = 0;
    waitpid(launcher_, &status, 0);
    launcher_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int steps() const {
    std::ifstream in(dir_ / out_ / "metrics.jsonl");
    return static_cast<int>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }
  // The launcher has blocked SIGUSR2 to hear it in a thread of its own; before that it is a shell.
  bool launcher_listens() const {
    for (int i = 0; i < 1000; ++i) {
      std::ifstream in("/proc/" + std::to_string(launcher_) + "/status");
      for (std::string word; in >> word;)
        if (word == "SigBlk:" && in >> word && std::stoull(word, nullptr, 16) >> (SIGUSR2 - 1) & 1)
          return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  bool wait_for_steps(int count) {
    for (int i = 0; i < 4000 && steps() < count; ++i) {
      if (waitid(P_PID, static_cast<id_t>(launcher_), nullptr, WEXITED | WNOHANG | WNOWAIT) != 0)
        return false;
      std::this_thread::sleep_for(10ms);
    }
    return steps() >= count;
  }
  // Processes `triax train` that work in this test's folder.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid <= 0 || fs::read_symlink(entry.path() / "cwd", ignored) != fs::canonical(dir_)) continue;
      std::ifstream in(entry.path() / "cmdline");
      const std::string line(std::istreambuf_iterator<char>(in), {});
      if (line.find(std::string("triax\0train", 11)) != std::string::npos && line.find("mpirun") != 0)
        found.push_back(pid);
    }
    return found;
  }
  size_t ranks_left(std::chrono::seconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!ranks().empty() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(50ms);
    return ranks().size();
  }
  bool said(const std::string& text) const { return output(out_).find(text) != std::string::npos; }
  // The step of the newest checkpoint.
  int newest() const {
    int newest = -1;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(dir_ / out_ / "checkpoints", none))
      if (entry.path().filename().string().rfind("step-", 0) == 0 &&
          fs::exists(entry.path() / "manifest.json"))
        newest = std::max(newest, manifest(entry.path())["step"].get<int>());
    return newest;
  }

  size_t set_aside() const {
    size_t count = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(dir_ / out_ / "checkpoints", none))
      count += entry.path().filename().string().find("abandoned") != std::string::npos;
    return count;
  }

  std::string out_, program_ = TRIAX_BINARY_DIR "/triax";
  pid_t launcher_ = 0;
};

class FullLaunchRunTest : public LaunchRunTest {};

TEST_F(LaunchRunTest, WhatCanNotStartIsUsageAndNeverRetried) {
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    start("no", arguments);
    EXPECT_EQ(finish(), 2) << arguments;
    EXPECT_TRUE(said(why)) << arguments << ": " << output("no");
    EXPECT_FALSE(said("again")) << output("no");
  };
  refused("--hosts '' --dry-run", "is empty; name hosts");
  refused("--hostfile '' --dry-run", "is empty; name hosts");
  refused("--mpirun /nowhere/mpirun --max-restarts 2", "name it with --mpirun");
}

TEST_F(LaunchRunTest, ABatchScriptIsForAsManyRanksAsItsNodesTake) {
  start("run", "--slurm --nodes 2 --ranks-per-node 2 --dry-run --set parallel.data=auto");
  EXPECT_EQ(finish(), 0) << output("run");
  EXPECT_TRUE(said("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n")) << output("run");
  start("run", "--slurm --nodes 2 --ranks-per-node 2 --dry-run --mpirun /opt/mpirun");
  EXPECT_EQ(finish(), 2) << output("run");
  EXPECT_TRUE(said("are for ranks that mpirun starts")) << output("run");
}

// In place of srun stands a program that ends well.
TEST_F(LaunchRunTest, AnElasticJobSaysThatItsAllocationIsSmaller) {
  fs::create_directories(dir_ / "bin");
  fs::create_symlink("/bin/true", dir_ / "bin/srun");
  program_ = "env SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=1 SLURM_NTASKS=1 PATH=" +
             (dir_ / "bin").string() + ":$PATH " + program_;
  start("run", "--elastic");
  EXPECT_EQ(finish(), 0) << output("run");
  EXPECT_TRUE(
      said("the allocation is smaller; going on with data degree 1 instead of 2 (1 instead of 2 ranks"))
      << output("run");
}

TEST_F(LaunchRunTest, VerboseReachesTheRanks) {
  start("run", "-v --dry-run");
  EXPECT_EQ(finish(), 0);
  EXPECT_TRUE(said("--verbose")) << output("run");
}

TEST_F(FullLaunchRunTest, ASaveAskedForTooEarlyEndsNothing) {
  for (const auto wait : {0ms, 50ms, 150ms, 400ms}) {
    start("run" + std::to_string(wait.count()), "");
    ASSERT_TRUE(launcher_listens());
    std::this_thread::sleep_for(wait);
    kill(launcher_, SIGUSR2);
    for (int i = 0; i < 2000 && newest() < 1; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_GE(newest(), 1) << output(out_);
    EXPECT_TRUE(wait_for_steps(newest() + 2)) << output(out_);
    kill(launcher_, SIGTERM);
    EXPECT_EQ(finish(), 75) << output(out_);
  }
}

TEST_F(LaunchRunTest, SignalsSaveWithinAStepAndTellTheStatus) {
  const struct { int signal, status; } rows[] = {{SIGTERM, 75}, {SIGUSR1, 75}, {SIGINT, 130}};
  int done = 0;
  for (const auto& row : rows) {
    start("run", "");
    ASSERT_TRUE(wait_for_steps(done + 3)) << output("run");
    if (row.signal == SIGTERM) {  // first a save that goes on
      kill(launcher_, SIGUSR2);
      for (int i = 0; i < 1000 && newest() < 1; ++i) std::this_thread::sleep_for(10ms);
      EXPECT_GE(newest(), 1) << output("run");
      ASSERT_TRUE(wait_for_steps(newest() + 2));
    }
    kill(launcher_, row.signal);
    EXPECT_EQ(finish(), row.status) << output("run");
    EXPECT_EQ(newest(), steps()) << output("run");
    EXPECT_GT(newest(), done);
    done = newest();
  }
}

TEST_F(FullLaunchRunTest, InterruptedTwiceEndsAtOnce) {
  start("run", "");
  ASSERT_TRUE(wait_for_steps(2)) << output("run");
  for (const pid_t rank : ranks()) kill(rank, SIGSTOP);  // they can't save
  kill(launcher_, SIGINT);
  std::this_thread::sleep_for(200ms);
  const auto begin = std::chrono::steady_clock::now();
  kill(launcher_, SIGINT);
  EXPECT_EQ(finish(), 130) << output("run");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST_F(FullLaunchRunTest, AStopBeforeTheRanksListenLosesNothing) {
  start("run", "");
  for (int i = 0; i < 1000 && !said("triax launch: mpirun"); ++i) std::this_thread::sleep_for(10ms);
  kill(launcher_, SIGTERM);
  EXPECT_EQ(finish(), 75) << output("run");
}

TEST_F(LaunchRunTest, AKilledRankIsStartedAgainFromTheNewestCheckpoint) {
  ASSERT_EQ(triax("whole", "--set training.steps=200"), 0) << output("whole");
  start("run", "--max-restarts 1 --backoff 0.1 --set training.steps=200 --set checkpoint.interval=5");
  for (int i = 0; i < 4000 && newest() < 5; ++i) std::this_thread::sleep_for(5ms);
  const std::vector<pid_t> victims = ranks();
  ASSERT_FALSE(victims.empty());
  kill(victims.back(), SIGKILL);
  EXPECT_EQ(finish(), 0) << output("run");
  EXPECT_TRUE(said("exited on signal 9 (Killed)")) << output("run");
  EXPECT_TRUE(said("starting it again from the checkpoint of step")) << output("run");
  EXPECT_EQ(metrics("run"), metrics("whole"));
  EXPECT_EQ(tensors("run", 200), tensors("whole", 200));
}

// The named checkpoint is where the job begins, not where each start of it does.
TEST_F(LaunchRunTest, ARestartGoesOnFromTheNewestAlsoWhereOneWasNamed) {
  ASSERT_EQ(triax("run", "--set training.steps=300 --set checkpoint.interval=100"), 0) << output("run");
  start("run",
        "--max-restarts 1 --backoff 0.1 --set training.steps=300 --set checkpoint.interval=20 --set "
        "checkpoint.resume=" +
            checkpoint("run", 100).string());
  for (int i = 0; i < 4000 && (set_aside() < 2 || newest() < 140); ++i) std::this_thread::sleep_for(5ms);
  const std::vector<pid_t> victims = ranks();
  ASSERT_FALSE(victims.empty()) << output("run");
  kill(victims.back(), SIGKILL);
  EXPECT_EQ(finish(), 0) << output("run");
  EXPECT_TRUE(said("starting it again from the checkpoint of step")) << output("run");
  EXPECT_EQ(set_aside(), 2U) << "200 and 300, and none of this launch";
  EXPECT_EQ(newest(), 300);
}

TEST_F(LaunchRunTest, ABatchJobThatIsPutBackIntoTheQueueGoesOn) {
  start("run", "--set checkpoint.resume=never");
  ASSERT_TRUE(wait_for_steps(3)) << output("run");
  kill(launcher_, SIGUSR1);
  EXPECT_EQ(finish(), 75) << output("run");
  const int done = newest();
  setenv("SLURM_RESTART_COUNT", "1", 1);
  start("run", "--set checkpoint.resume=never");
  unsetenv("SLURM_RESTART_COUNT");
  EXPECT_TRUE(wait_for_steps(done + 3)) << output("run");
  kill(launcher_, SIGUSR1);
  EXPECT_EQ(finish(), 75) << output("run");
  EXPECT_FALSE(fs::exists(dir_ / "run.old-1"));
  EXPECT_GT(newest(), done);
}

TEST_F(LaunchRunTest, AnUpgradeWhileTheJobRunsLeavesItRestartable) {
  fs::create_directories(dir_ / "bin");
  fs::create_directory_symlink(TRIAX_BINARY_DIR "/lib", dir_ / "bin/lib");
  fs::copy_file(program_, dir_ / "bin/triax");
  fs::copy_file(program_, dir_ / "bin/new");
  program_ = (dir_ / "bin/triax").string();
  start("run", "--max-restarts 1 --backoff 0.1 --set training.steps=200 --set checkpoint.interval=5");
  ASSERT_TRUE(wait_for_steps(10)) << output("run");
  fs::rename(dir_ / "bin/new", dir_ / "bin/triax");
  const std::vector<pid_t> victims = ranks();
  ASSERT_FALSE(victims.empty()) << output("run");
  kill(victims.back(), SIGKILL);
  EXPECT_EQ(finish(), 0) << output("run");
  EXPECT_EQ(newest(), 200);
}

TEST_F(LaunchRunTest, AConsoleThatGoesAwayEndsNothing) {
  out_ = "run";
  const std::string line =
      "cd " + dir_.string() + " && " + program_ +
      " launch job.yaml --bind none --set training.steps=60 --set logging.interval=1 --set "
      "output_dir=run 2>&1 | head -n 1 >run.out";
  EXPECT_EQ(std::system(line.c_str()), 0);
  for (int i = 0; i < 3000 && newest() < 60; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(newest(), 60);
}

TEST_F(FullLaunchRunTest, AJobThatNeverGetsAnywhereIsGivenUp) {
  // Its output can't be written: every start fails alike.
  start(
      "run",
      "--max-restarts 1 --backoff 0.1 --set checkpoint.dir=/proc/nowhere --set checkpoint.save_initial=true");
  EXPECT_EQ(finish(), 1) << output("run");
  EXPECT_TRUE(said("1 failure of 1 without a newer checkpoint")) << output("run");
  EXPECT_TRUE(said("2 failures without a newer checkpoint, more than --max-restarts 1")) << output("run");
  EXPECT_TRUE(said("first cause: rank ")) << output("run");
}

TEST_F(LaunchRunTest, BadUsageIsNotStartedAgain) {
  start("run", "--max-restarts 5 --set training.steps=0");
  EXPECT_EQ(finish(), 2) << output("run");
  start("run", "--hosts a:1,b:1 --set parallel.tensor=2 --set parallel.data=1");
  EXPECT_EQ(finish(), 2) << output("run");
  EXPECT_TRUE(said("the tensor group of ranks 0 .. 1 would be spread over a .. b")) << output("run");
}

TEST_F(LaunchRunTest, NoRankOutlivesALauncherOrAnMpirunThatIsKilled) {
  start("run", "");
  ASSERT_TRUE(wait_for_steps(2)) << output("run");
  kill(launcher_, SIGKILL);
  finish();
  EXPECT_EQ(ranks_left(10s), 0U);
  start("again", "");
  ASSERT_TRUE(wait_for_steps(2)) << output("again");
  const std::string children =
      "/proc/" + std::to_string(launcher_) + "/task/" + std::to_string(launcher_) + "/children";
  std::ifstream file(children);
  pid_t mpirun = 0;
  file >> mpirun;
  ASSERT_GT(mpirun, 0);
  kill(mpirun, SIGKILL);
  EXPECT_EQ(finish(), 1) << output("again");
  EXPECT_TRUE(said("mpirun itself was ended by signal 9")) << output("again");
  EXPECT_EQ(ranks_left(10s), 0U);
}

}  // namespace
}  // namespace triax::test
