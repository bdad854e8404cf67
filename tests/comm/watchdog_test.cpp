#include "comm/watchdog.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "comm/local_ranks.h"
#include "support/comm_exercise.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using exercise::view;

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in\n" << text;
}

/// Ranks that are threads, watched; the report ends the world instead of the process.
class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() : dir_(fs::temp_directory_path() / ("triax-watchdog-" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~WatchdogTest() override { fs::remove_all(dir_); }

  using Body = std::function<void(Communicator& world, int rank)>;
  void run(int size, std::chrono::milliseconds limit, const Body& body) {
    CommOptions comm;
    comm.timeout = no_timeout;
    ThreadWorld world(size, comm);
    WatchdogOptions options;
    options.limit = limit;
    options.warn = [&](const std::string& text) { warning_ += text; };
    options.end = [&](const std::string& text, int status) {
      report_ = text;
      status_ = status;
      ended_ = true;
      world.abort("the watchdog");
    };
    Watchdog watchdog(size, options);
    watchdog.use_folder(dir_, "run1");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        const auto mine = world.communicator(rank);
        watchdog.watch(rank, mine->shared_recorder());
        try {
          body(*mine, rank);
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::aborted) << error.what();
        }
      });
    for (auto& t : threads) t.join();
  }

  fs::path dir_;
  std::string report_, warning_;
  int status_ = 0;
  std::atomic<bool> ended_ = false;
};

TEST_F(WatchdogTest, EndsAJobInWhichARankComputesForEver) {
  int waiting = 0;
  run(3, 300ms, [&](Communicator& world, int rank) {
    world.recorder().set_step(7);
    world.barrier();
    if (rank == 1)
      while (!ended_) std::this_thread::sleep_for(1ms);  // as if it computed
    std::vector<float> x(4);
    if (rank == 0) waiting = __LINE__ + 1;
    if (rank != 1) world.all_reduce(view(x), view(x), ReduceOp::sum).wait();
  });
  EXPECT_EQ(status_, 1);
  expect_words(report_,
               {"the watchdog ends the job", "logging.watchdog_seconds: 0.3",
                "rank 1 is missing from all_reduce(sum) number 1 of f32[4] at comm/watchdog_test.cpp:" +
                    std::to_string(waiting) + " in group 'world' (ranks 0, 1, 2)",
                "rank 1 has been computing for 0.", "in step 7; its last operation: barrier number 0"});
  for (int r = 0; r < 3; ++r) {
    const auto record = read_record(dir_, r);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->waits_in() != nullptr, r != 1);
    EXPECT_EQ(record->step, 7);
  }
}

TEST_F(WatchdogTest, TellsRanksThatWaitForEachOther) {
  run(2, 300ms, [&](Communicator& world, int rank) {
    std::vector<float> x(4);
    world.recv(view(x), 1 - rank).wait();
  });
  expect_words(report_,
               {"rank 0 waits in recv(from 1)", "rank 1 waits in recv(from 0)", "wait for each other"});
}

TEST_F(WatchdogTest, IsPatientWithAnAnnouncedPhaseAndSaysSo) {
  run(2, 200ms, [&](Communicator& world, int rank) {
    const CommPhase phase(world.recorder(), "saving a checkpoint");
    if (rank == 0) std::this_thread::sleep_for(700ms);
    world.barrier();
  });
  EXPECT_FALSE(ended_) << report_;
  expect_words(warning_, {"there is a reason; the job goes on", "rank 0 is saving a checkpoint"});
}

TEST_F(WatchdogTest, CountsOnlyWaitsOfOneOperation) {
  // Long computation, also between the start of an operation and the wait for it, and many short waits.
  run(2, 700ms, [&](Communicator& world, int) {
    std::vector<float> x(4);
    Pending sum = world.all_reduce(view(x), view(x), ReduceOp::sum);
    std::this_thread::sleep_for(1000ms);
    sum.wait();
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(200ms);
      world.barrier();
    }
  });
  EXPECT_FALSE(ended_) << report_;
  EXPECT_EQ(warning_, "");
}

// Rank 1 lets rank 0 wait until some time after the whole process has been stopped for longer than the limit.
TEST_F(WatchdogTest, DoesNotCountTheTimeInWhichAllWasSuspended) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t job = fork();
  if (job == 0) {
    run(2, 1000ms, [&](Communicator& world, int rank) {
      std::vector<float> x(4);
      if (rank == 0) return world.recv(view(x), 1).wait();
      if (write(ready[1], "", 1) != 1) _exit(2);
      using Clock = std::chrono::steady_clock;
      for (auto at = Clock::now(), before = at; at - before < 1s && !ended_; at = Clock::now()) {
        before = at;
        std::this_thread::sleep_for(1ms);
      }
      std::this_thread::sleep_for(300ms);
      world.send(view(x), 0).wait();
    });
    std::fputs(report_.c_str(), stderr);
    _exit(ended_ ? 1 : 0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::this_thread::sleep_for(100ms);
  kill(job, SIGSTOP);
  std::this_thread::sleep_for(2s);
  kill(job, SIGCONT);
  int status = -1;
  waitpid(job, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the watchdog ended the job";
  close(ready[0]);
  close(ready[1]);
}

// What processes do: each has a watchdog of its own and they meet in the folder alone.
TEST_F(WatchdogTest, ProcessesAnswerThroughTheFolderAndEndTogether) {
  CommOptions comm;
  comm.timeout = no_timeout;
  ThreadWorld world(3, comm);
  std::mutex mutex;
  std::vector<std::string> reports;
  std::vector<int> ended;
  std::vector<std::unique_ptr<Watchdog>> dogs;
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(world.communicator(r));
    WatchdogOptions options;
    options.limit = 300ms;
    options.answer_time = 700ms;
    options.end_time = 100ms;
    options.words_on = [](int rank) { return fmt::format("words on {}", rank); };
    options.end = [&, r](const std::string& text, int status) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(status, 1);
      ended.push_back(r);
      if (!text.empty()) reports.push_back(text);
      world.abort("the watchdog");
    };
    if (r == 2) continue;  // this one is stopped: nothing of it runs
    dogs.push_back(std::make_unique<Watchdog>(3, options));
    dogs.back()->watch(r, ranks.back()->shared_recorder());
    dogs.back()->use_folder(dir_, "run2");
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] { EXPECT_THROW(ranks[static_cast<size_t>(r)]->barrier(), Error); });
  for (auto& t : threads) t.join();
  for (int tries = 0; tries < 500; ++tries) {
    std::this_thread::sleep_for(10ms);
    const std::lock_guard lock(mutex);
    if (ended.size() == 2) break;
  }
  dogs.clear();
  EXPECT_EQ(ended.size(), 2u);
  ASSERT_EQ(reports.size(), 1u) << "one tells it";
  expect_words(reports[0], {"rank 2 is missing from barrier number 0", "rank 2 does not answer: words on 2"});
  EXPECT_TRUE(read_record(dir_, 0) && read_record(dir_, 1));
}

TEST_F(WatchdogTest, AgreesOnTheFirstOfTwoCauses) {
  WatchdogOptions options;
  options.end = [](const std::string&, int) {};
  Watchdog one(2, options), two(2, options);
  one.use_folder(dir_, "run3");
  two.use_folder(dir_, "run3");
  EXPECT_EQ(two.claim({1, 2, "rank 1: out of paper"}).rank, 1);
  const EndCause first = one.claim({0, 1, "rank 0: out of ink"});
  EXPECT_EQ(first.rank, 1);
  EXPECT_EQ(first.status, 2);
  EXPECT_EQ(first.text, "rank 1: out of paper");
}

}  // namespace
}  // namespace triax
