// Runs that hang, crash or slow down: who is named, how fast it ends, and that nothing of it is left.
#include <sys/syscall.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "job_runs.h"

namespace triax::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A job that would train for hours, in the background.
class HangTest : public JobRuns {
 protected:
  HangTest()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 48, num_hidden_layers: 4, num_attention_heads: 12, intermediate_size: 96,
        max_position_embeddings: 16}
training: {steps: 10000000, global_batch_size: 12, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
parallel: {tensor: 2, pipeline: 1, data: 2}
checkpoint: {interval: 100000000}
logging: {tensorboard: false, watchdog_seconds: 2, interval: 1000000}
)") {}
  ~HangTest() override {
    for (const int pid : processes()) kill(pid, SIGKILL);
    if (shell_.joinable()) shell_.join();
  }

  void start(const std::string& arguments, const std::string& launcher = "") {
    shell_ = std::thread([this, arguments, launcher] { status_ = triax("out", arguments, launcher); });
    for (int tries = 0; tries < 1200 && metrics("out").size() < 2 && !ended(); ++tries)
      std::this_thread::sleep_for(100ms);
    ASSERT_FALSE(ended()) << output("out");
  }
  bool ended() const { return status_ >= 0; }
  /// Its exit status; the test fails when it takes longer than `limit`.
  int wait(std::chrono::seconds limit) {
    const auto begin = Clock::now();
    while (!ended() && Clock::now() - begin < limit) std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(ended()) << "still running after " << limit.count() << " s\n" << output("out");
    for (const int pid : processes()) kill(pid, SIGKILL);
    shell_.join();
    return status_;
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Processes of this test's job, the launcher among them; of one rank when `rank` is given.
  std::vector<int> processes(int rank = -1) const {
    std::vector<int> pids;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::error_code none;
      if (fs::read_symlink(entry.path() / "cwd", none) != dir_) continue;
      const std::string words = read(entry.path() / "cmdline");
      if (words.find("triax") == std::string::npos || words.rfind("sh", 0) == 0) continue;
      const std::string mine = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
      if (rank >= 0 && read(entry.path() / "environ").find(mine + '\0') == std::string::npos) continue;
      pids.push_back(std::stoi(name));
    }
    return pids;
  }
  /// The thread of a rank that is one.
  static int thread_of(int pid, const std::string& name) {
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task"))
      if (read(entry.path() / "comm") == name + "\n") return std::stoi(entry.path().filename());
    return -1;
  }
  void expect_gone() {
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(processes().empty()) << "a process of the job is left";
  }
  void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in\n" << text;
  }

  std::thread shell_;
  std::atomic<int> status_ = -1;
};

class FullHangTest : public HangTest {};

TEST_F(FullHangTest, AStoppedProcessIsNamedAndNoneIsLeft) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  start("", std::string(mpirun) + "-n 4 ");
  const std::vector<int> stopped = processes(2);
  ASSERT_EQ(stopped.size(), 1u);
  kill(stopped[0], SIGSTOP);
  EXPECT_NE(wait(60s), 0);
  expect_gone();
  const std::string text = output("out");
  expect_words(text, {"the watchdog ends the job", "rank 2 is missing from ",
                      "rank 2 does not answer: process " + std::to_string(stopped[0]) + " is stopped"});
  EXPECT_EQ(text.find("rank 1 is missing"), std::string::npos) << text;
  for (int r : {0, 1, 3})
    EXPECT_TRUE(fs::exists(dir_ / "out/logs" / ("collectives-rank-0000" + std::to_string(r) + ".jsonl")));
}

TEST_F(FullHangTest, AJobThatIsSuspendedAsAWholeGoesOn) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  start("", std::string(mpirun) + "-n 4 ");
  for (const int rank : {0, 1, 2, 3})
    for (const int pid : processes(rank)) kill(pid, SIGSTOP);
  std::this_thread::sleep_for(4s);  // the limit is two
  const size_t steps = metrics("out").size();
  for (const int rank : {0, 1, 2, 3})
    for (const int pid : processes(rank)) kill(pid, SIGCONT);
  std::this_thread::sleep_for(5s);
  EXPECT_FALSE(ended()) << output("out");
  EXPECT_GT(metrics("out").size(), steps);
  for (const int pid : processes(0)) kill(pid, SIGTERM);
  EXPECT_EQ(wait(60s), 75) << output("out");
}

TEST_F(HangTest, ADeadProcessEndsTheJob) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  start("", std::string(mpirun) + "-n 4 ");
  const std::vector<int> killed = processes(3);
  ASSERT_EQ(killed.size(), 1u);
  kill(killed[0], SIGKILL);
  EXPECT_NE(wait(30s), 0);
  expect_gone();
}

TEST_F(HangTest, ACrashTellsRankStepAndPlace) {
  start("--ranks 4");
  const std::vector<int> pids = processes();
  ASSERT_EQ(pids.size(), 1u);
  const int thread = thread_of(pids[0], "rank 3");
  ASSERT_GT(thread, 0);
  syscall(SYS_tgkill, pids[0], thread, SIGSEGV);
  EXPECT_NE(wait(30s), 0);
  expect_gone();
  expect_words(output("out"), {"triax: error: rank 3 crashed in step ", "SIGSEGV (invalid memory access)",
                               "operation", ".cpp:"});
  expect_words(read(dir_ / "out/logs/rank-00003.log"), {"rank 3 crashed in step "});
}

TEST_F(HangTest, ACrashOfAProcessEndsTheJob) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  start("", std::string(mpirun) + "-n 4 ");
  const std::vector<int> pids = processes(1);
  ASSERT_EQ(pids.size(), 1u);
  kill(pids[0], SIGBUS);
  EXPECT_NE(wait(30s), 0);
  expect_gone();
  expect_words(output("out"), {"triax: error: rank 1 crashed in step ", "SIGBUS"});
}

// Before MPI has begun nobody can be asked: a process that never calls it is noticed all the same.
TEST_F(FullHangTest, AStartThatNeverEndsIsEnded) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const std::string line = "cd " + dir_.string() + " && timeout 60 env " + mpirun +
                           "-n 1 " TRIAX_BINARY_DIR "/triax train job.yaml --set parallel.data=1 --set " +
                           "logging.watchdog_seconds=0.2 --set output_dir=out : -n 1 sleep 50 >out.out 2>&1";
  const int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1) << output("out");
  expect_words(output("out"), {"rank 0: MPI's start takes longer than 2 s"});
}

// Open MPI's mpirun waits for ever for a process that ended before the last of them was started.
TEST_F(HangTest, ManyProcessesOfABadJobEndWithItsStatus) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  for (const char* arguments : {"train bad.yaml", "train --bogus", "version"}) {
    const std::string line = "cd " + dir_.string() + " && timeout 30 env " + mpirun +
                             "-n 64 " TRIAX_BINARY_DIR "/triax " + arguments + " >out.out 2>&1";
    const int status = std::system(line.c_str());
    EXPECT_EQ(WEXITSTATUS(status), std::string(arguments) == "version" ? 0 : 2) << arguments << output("out");
  }
}

// Stopped three quarters of the time, a rank is four times as slow as the others.
TEST_F(FullHangTest, ASlowRankIsNamedAndNoOther) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  start(
      "--set parallel.tensor=1 --set training.global_batch_size=96 --set logging.straggler_window=25 --set "
      "logging.watchdog_seconds=60",
      std::string(mpirun) + "-n 2 ");
  const std::vector<int> slow = processes(1);
  ASSERT_EQ(slow.size(), 1u);
  const auto begin = Clock::now();
  while (output("out").find("straggler: ") == std::string::npos && Clock::now() - begin < 90s && !ended()) {
    for (int i = 0; i < 20; ++i) {
      kill(slow[0], SIGSTOP);
      std::this_thread::sleep_for(15ms);
      kill(slow[0], SIGCONT);
      std::this_thread::sleep_for(5ms);
    }
  }
  const std::string text = output("out");
  expect_words(text, {"straggler: rank 1 computes for "});
  EXPECT_EQ(text.find("straggler: rank 0"), std::string::npos) << text;
  expect_words(read(dir_ / "out/logs/rank-00001.log"), {"straggler: rank 1 computes for ", "s computing, "});
  EXPECT_NE(read(dir_ / "out/metrics.jsonl").find(R"("slowest_rank":1,)"), std::string::npos);
  for (const int pid : processes(0)) kill(pid, SIGTERM);
  EXPECT_EQ(wait(60s), 75);
}

}  // namespace
}  // namespace triax::test
