// Disks that fail at any call: what a save says then, and what it leaves.
//
// This program's own write(), fsync() and so on stand before the C library's, so that any of them can be made
// to fail, in our code and in the libraries that it calls.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "checkpoint/background.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folders.h"
#include "checkpoint/verify.h"
#include "logical_state.h"

namespace {

enum Call { call_open, call_write, call_fsync, call_close, call_rename, call_mkdir, call_read, calls };

/// The fault that is to come.
struct Fault {
  std::atomic<int> call{-1};
  std::atomic<int> countdown{0};  // 1: the next such call
  std::atomic<int> error{0};      // errno; 0: a short write
  std::atomic<bool> lasting{false};
  std::atomic<int> fired{0};
  std::array<std::atomic<int>, calls> seen{};
} fault;

// True when this call is to fail.
bool strikes(Call call) {
  ++fault.seen[call];
  if (fault.call != call) return false;
  const int left = --fault.countdown;
  if (left > 0 || (left < 0 && !fault.lasting)) return false;
  ++fault.fired;
  return true;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool fails(Call call) {
  if (!strikes(call)) return false;
  errno = fault.error;
  return true;
}

// Not a standard stream, and not the memory that HDF5 lays files out in.
bool on_disk(int fd) {
  std::array<char, 64> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return fd > 2 && ::readlink(link.c_str(), name.data(), name.size()) > 0 &&
         std::strncmp(name.data(), "/dev/shm/", 9) != 0;
}

ssize_t write_or_fail(size_t bytes, const std::function<ssize_t(size_t)>& write) {
  if (!strikes(call_write)) return write(bytes);
  if (fault.error == 0 && bytes > 1) return write(bytes / 2);
  errno = fault.error == 0 ? EINTR : fault.error.load();
  return -1;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
  va_end(rest);
  if ((flags & O_CREAT) != 0 && std::strncmp(path, "/dev/shm/", 9) != 0 && fails(call_open)) return -1;
  return real(path, flags, mode);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (!on_disk(fd)) return real(fd, data, bytes);
  return write_or_fail(bytes, [&](size_t n) { return real(fd, data, n); });
}
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return on_disk(fd) && fails(call_read) ? -1 : real(fd, data, bytes, offset);
}
int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  return fails(call_fsync) ? -1 : real(fd);
}
int close(int fd) {
  static auto* const real = next<int(int)>("close");
  const bool counts = on_disk(fd);
  const int closed = real(fd);  // it is closed in any case, as with Linux
  return counts && fails(call_close) ? -1 : closed;
}
int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return fails(call_rename) ? -1 : real(from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return fails(call_mkdir) ? -1 : real(path, mode);
}
}

namespace triax::test {
namespace {

void arm(Call call, int countdown, int error, bool lasting) {
  fault.call = call;
  fault.countdown = countdown;
  fault.error = error;
  fault.lasting = lasting;
}
void disarm() {
  fault.call = -1;
}

// Saves the state of step n, which is that of seed n; returns what went wrong.
std::string save_error(const fs::path& run, int64_t step, bool background) {
  const auto seed = static_cast<uint64_t>(step);
  try {
    if (!background) {
      save_state(run, step, 2, seed, seed, 2);
    } else {
      run_local_ranks(2, {}, [&](Communicator& world, int rank) {
        const Pieces snapshot = cut(small_model(), 2, rank, seed);
        fill(snapshot, seed);
        BackgroundSave(world, request_of(run, step, 2, snapshot, 2)).finish();
      });
    }
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

void fail_at_random(int faults) {
  TestFolder folder;
  const fs::path run = folder / "run";
  ASSERT_EQ(save_error(run, 1, false), "");
  for (auto& seen : fault.seen) seen = 0;
  ASSERT_EQ(save_error(run, 2, false), "");
  std::array<int, calls> usual{};
  for (size_t c = 0; c < usual.size(); ++c) usual[c] = fault.seen[c];
  for (Call call : {call_open, call_write, call_fsync, call_close, call_rename, call_mkdir})
    ASSERT_GT(usual[call], 0) << "call " << call << " does not come through here";

  std::mt19937 random(11);
  int64_t newest = 2, step = 2;
  int errors = 0, harmless = 0;
  for (fault.fired = 0; fault.fired < faults;) {
    ++step;
    const auto call = static_cast<Call>(random() % call_read);
    static constexpr int kinds[] = {ENOSPC, EIO, EROFS, EDQUOT, 0};
    int error = kinds[random() % (call == call_write ? 5 : 4)];
    const bool lasting = error != 0 && random() % 3 == 0;
    const std::string what =
        fmt::format("call {}, error {}{}", static_cast<int>(call), error, lasting ? ", lasting" : "");
    const int before = fault.fired;
    arm(call, 1 + static_cast<int>(random() % static_cast<uint32_t>(usual[call])), error, lasting);
    const std::string said = save_error(run, step, random() % 2 == 0);
    disarm();
    if (fault.fired > before + 1) fault.fired = before + 1;  // a lasting one counts once
    if (!said.empty()) {
      ++errors;
      EXPECT_NE(error, 0) << "a short write is no failure: " << said;
      EXPECT_NE(said.find(errno_text(error)), std::string::npos) << what << ": " << said;
      EXPECT_NE(said.find("rank "), std::string::npos) << said;
      EXPECT_NE(said.find(run.string()), std::string::npos) << said;
    } else if (fault.fired > before) {
      ++harmless;
    }
    const FoundCheckpoint found = find_checkpoint(run);
    ASSERT_TRUE(found.info) << what << ": the last good one is gone";
    EXPECT_TRUE(found.problems.empty()) << what << ": " << found.problems[0];
    // A save that failed may have got its name already (when the name could not be made durable).
    EXPECT_TRUE(found.info->step == step || (!said.empty() && found.info->step == newest))
        << what << ": step " << found.info->step << " is there, not " << step << "; " << said;
    newest = found.info->step;
    ASSERT_EQ(load_and_compare(found.info->folder, 3, static_cast<uint64_t>(newest)), 0) << what;
  }
  if (faults >= 50) {  // else both may miss by chance
    EXPECT_GT(errors, faults / 3);
    EXPECT_GT(harmless, 0);
  }
  // A disk that works again: retention catches up, and what failed is cleared away.
  ASSERT_EQ(save_error(run, step + 1, false), "");
  EXPECT_EQ(step_folders(run).size(), 2U);
  for (const auto& entry : fs::directory_iterator(run))
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
}

TEST(IoFault, AnyCallMayFailAndTheNewestCheckpointLoads) {
  fail_at_random(times(50));
}
TEST(FullIoFault, TwoHundredFaults) {
  fail_at_random(200);
}

TEST(IoFault, AReadThatFailsIsNamedAndNothingIsTakenForGood) {
  TestFolder folder;
  const fs::path saved = save_state(folder.path(), 1, 3, 1);
  for (auto& seen : fault.seen) seen = 0;
  ASSERT_EQ(load_error(saved), "");
  const int reads = fault.seen[call_read];
  ASSERT_GT(reads, 10);
  for (int n = 1; n <= reads; ++n) {
    arm(call_read, n, EIO, false);
    const std::string said = load_error(saved);
    disarm();
    EXPECT_NE(said.find(errno_text(EIO)), std::string::npos) << n << ": " << said;
    EXPECT_NE(said.find(saved.string()), std::string::npos) << n << ": " << said;
  }
  EXPECT_EQ(load_and_compare(saved, 2, 1), 0);
}

}  // namespace
}  // namespace triax::test
