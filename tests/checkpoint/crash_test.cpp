// Writers that are killed, disks that are full, old checkpoints that go.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "checkpoint/background.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folders.h"
#include "checkpoint/list.h"
#include "checkpoint/verify.h"
#include "logical_state.h"

namespace triax::test {
namespace {

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(dir)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// Runs `body` in a child process (whose threads are its own) and returns its wait status.
template <class Body>
pid_t start_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Saves step after step on two ranks until it is killed; the state of step n is that of seed n, so that what
// is loaded proves which step it is.
void save_for_ever(const fs::path& run, int64_t step, bool background) {
  if (!background)
    for (;; ++step) save_state(run, step, 2, static_cast<uint64_t>(step), static_cast<uint64_t>(step), 2);
  run_local_ranks(2, {}, [&](Communicator& world, int rank) {
    const Pieces snapshot = cut(small_model(), 2, rank, 1);
    for (int64_t now = step;; ++now) {
      fill(snapshot, static_cast<uint64_t>(now));
      BackgroundSave(world, request_of(run, now, 2, snapshot, 2)).finish();
    }
  });
}

void kill_writers(int kills, bool background) {
  TestFolder folder;
  const fs::path run = folder / "run";
  std::mt19937 random(7);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step : {1, 2, 3, 4}) save_state(folder / "timing", step, 2, 1);
  const auto one_save = (std::chrono::steady_clock::now() - start) / 4;
  int64_t newest = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const pid_t child = start_child([&] { save_for_ever(run, newest + 1, background); });
    std::this_thread::sleep_for(one_save * (random() % 300) / 100);
    ::kill(child, SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(wait_for(child)));
    const FoundCheckpoint found = find_checkpoint(run);
    EXPECT_TRUE(found.problems.empty()) << found.problems[0];
    if (!found.info) {
      EXPECT_EQ(newest, 0) << "the last good one is gone";
      continue;
    }
    EXPECT_GE(found.info->step, newest);
    newest = found.info->step;
    EXPECT_EQ(load_and_compare(found.info->folder, 3, static_cast<uint64_t>(newest)), 0) << newest;
    EXPECT_TRUE(verify_checkpoint(found.info->folder).problems.empty());
    // `latest` may lag, but names a checkpoint that was complete.
    std::string latest;
    std::getline(std::ifstream(run / "latest") >> std::ws, latest);
    EXPECT_TRUE(newest == 1 || latest.rfind("step-", 0) == 0) << latest;
  }
  EXPECT_GE(newest, kills / 6) << "the kills came too early to show anything";
  // The next save clears what the dead left.
  save_state(run, newest + 1, 2, 1, 1, 2);
  for (const std::string& name : names_in(run)) EXPECT_NE(name.rfind(".tmp-step", 0), 0u) << name;
}

TEST(Crash, KilledWritersNeverCostTheNewestCheckpoint) {
  kill_writers(times(25), false);
}
TEST(Crash, NorDoThoseThatWriteInTheBackground) {
  kill_writers(times(25), true);
}
TEST(FullCrash, FiveHundredKills) {
  kill_writers(250, false);
  kill_writers(250, true);
}

TEST(Crash, SavingAStepAgainReplacesItAndKeepsADamagedOneAside) {
  TestFolder folder;
  save_state(folder.path(), 8, 2, 1);
  const fs::path saved = save_state(folder.path(), 8, 3, 2);  // another grid, another state
  EXPECT_EQ(load_and_compare(saved, 2, 2), 0);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000008"}));
  fs::remove(saved / "shard-00001-of-00003.h5");
  EXPECT_EQ(load_and_compare(save_state(folder.path(), 8, 1, 3), 2, 3), 0);
  const auto names = names_in(folder.path());
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(names[0].rfind("damaged-step-00000008-", 0), 0u) << names[0];
}

TEST(Retention, KeepsTheNewestAndWhatIsNotItsOwn) {
  TestFolder folder;
  fs::create_directory(folder / "step-notes");
  fs::create_directory(folder / "step-00000001");  // damaged: no manifest
  std::ofstream(folder / "notes.txt") << "mine";
  for (int64_t step : {2, 3, 4, 5}) save_state(folder.path(), step, 2, 1, 1, 2);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"latest", "notes.txt", "step-00000001", "step-00000004",
                                      "step-00000005", "step-notes"}));
  EXPECT_EQ(read_file(folder / "latest"), "step-00000005\n");
  // Damaged ones do not count: the last good one stays however many come after it.
  fs::remove(folder / "step-00000005" / "manifest.json");
  save_state(folder.path(), 6, 1, 1, 1, 2);
  EXPECT_TRUE(fs::exists(folder / "step-00000004"));
  EXPECT_TRUE(fs::exists(folder / "step-00000005"));
  // What has just been saved stays, even when it is not the newest.
  save_state(folder.path(), 3, 1, 1, 1, 1);
  EXPECT_TRUE(fs::exists(folder / "step-00000003" / "manifest.json"));
  EXPECT_TRUE(fs::exists(folder / "step-00000006"));
  save_state(folder.path(), 7, 1, 1, 1, 0);  // 0 keeps all
  EXPECT_TRUE(fs::exists(folder / "step-00000006"));
}

TEST(Crash, TemporaryFoldersOfTheLivingStay) {
  TestFolder folder;
  std::vector<std::string> warnings;
  {
    TemporaryFolder alive(folder.path(), 9, "abcd");
    fs::create_directories(folder / ".tmp-step-00000009-dead" / "x");
    fs::create_directories(folder / ".removed-step-00000001-1" / "x");
    remove_stale(folder.path(), warnings);
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{".tmp-step-00000009-abcd"}));
  }
  EXPECT_TRUE(names_in(folder.path()).empty()) << "what was not committed goes";
  EXPECT_TRUE(warnings.empty());
}

TEST(Failure, AFullDeviceIsNamed) {
  try {
    FileWriter writer("/dev/full");
    FAIL() << "an existing file was opened to be written";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/dev/full"), std::string::npos);
  }
}

std::string save_error(const fs::path& run, int64_t step) {
  try {
    save_state(run, step, 2, static_cast<uint64_t>(step));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// What a failed save must leave: an error with rank, file and reason, no debris, the older checkpoint intact.
void check_failed_save(const fs::path& run, const std::string& error, const std::string& reason) {
  check(error.find(reason) != std::string::npos && error.find("rank ") != std::string::npos, "it said '{}'",
        error);
  check(load_and_compare(run / "step-00000001", 2, 1) == 0, "the older checkpoint is damaged");
  const auto names = names_in(run);
  check(names == std::vector<std::string>{"latest", "step-00000001"}, "{} names are left", names.size());
}

TEST(Failure, AWriterThatMayNotWriteMoreFailsOnAllRanks) {
  TestFolder folder;
  save_state(folder / "run", 1, 2, 1);
  const pid_t child = start_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3000, 3000};
    check(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit failed");
    check_failed_save(folder / "run", save_error(folder / "run", 2), "File too large");
  });
  EXPECT_EQ(wait_for(child), 0);
}

TEST(Failure, AFullDiskFailsOnAllRanksAndCostsNothing) {
  TestFolder folder;
  fs::create_directory(folder / "disk");
  // A private mount, seen by the child alone and gone with it. 77: not allowed to.
  const pid_t child = start_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("full", (folder / "disk").c_str(), "tmpfs", 0, "size=512k") != 0)
      ::_exit(77);
    const fs::path run = folder / "disk" / "run";
    save_state(run, 1, 2, 1);
    std::ofstream filler(folder / "disk" / "filler", std::ios::binary);
    for (int i = 0; i < 2000 && filler; ++i) filler << std::string(4096, 'x') << std::flush;
    filler.close();
    check_failed_save(run, save_error(run, 2), "No space left on device");
    fs::remove(folder / "disk" / "filler");  // and when there is room again it works
    check(save_error(run, 3).empty(), "no save after the disk was cleared");
    check(load_and_compare(run / "step-00000003", 3, 3) == 0, "wrong state");
  });
  const int status = wait_for(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting a tmpfs is not allowed here";
  EXPECT_EQ(status, 0);
}

TEST(Failure, AFolderThatCannotBeMadeIsNamed) {
  TestFolder folder;
  std::ofstream(folder / "run") << "a file";
  const std::string error = save_error(folder / "run", 1);
  EXPECT_NE(error.find((folder / "run").string()), std::string::npos) << error;
}

TEST(List, ShowsWhatIsThere) {
  TestFolder folder;
  const fs::path run = folder / "run" / "checkpoints";
  save_state(run, 9, 2, 1);
  save_state(run, 10, 2, 1);
  fs::remove(run / "step-00000010" / "shard-00001-of-00002.h5");
  std::ostringstream text, json_text, inspected, verified;
  EXPECT_EQ(run_checkpoint_ls(folder / "run", false, text), 0);
  EXPECT_NE(text.str().find("2.5000"), std::string::npos) << text.str();
  EXPECT_LT(text.str().find("step-00000009"), text.str().find("step-00000010")) << text.str();
  EXPECT_EQ(run_checkpoint_ls(run, true, json_text), 0);
  const auto list = nlohmann::json::parse(json_text.str());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].at("complete"));
  EXPECT_EQ(list[0].at("loss"), 2.5);
  EXPECT_FALSE(list[1].at("complete"));
  EXPECT_NE(list[1].at("problem").get<std::string>().find("shard-00001-of-00002.h5"), std::string::npos);

  EXPECT_EQ(run_checkpoint_inspect(folder / "run", true, inspected), 0);  // the newest complete one
  const auto details = nlohmann::json::parse(inspected.str());
  EXPECT_EQ(details.at("step"), 9);
  EXPECT_EQ(details.at("tensors").size(), small_model().size());
  EXPECT_EQ(details.at("tensors")[0].at("shape"), (std::vector<int64_t>{37, 12}));
  EXPECT_EQ(run_checkpoint_inspect(run / "step-00000009" / "", false, inspected), 0);
  EXPECT_NE(inspected.str().find("optimizer/final_norm.weight/exp_avg_sq"), std::string::npos);

  EXPECT_EQ(run_checkpoint_verify(run / "step-00000009", false, verified), 0);
  EXPECT_EQ(run_checkpoint_verify(run, false, verified), 1);
  EXPECT_NE(verified.str().find("shard-00001-of-00002.h5 is missing"), std::string::npos) << verified.str();
  EXPECT_THROW(run_checkpoint_ls(folder.path(), false, text), Error);
}

}  // namespace
}  // namespace triax::test
