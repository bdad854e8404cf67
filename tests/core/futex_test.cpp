#include "core/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace triax {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Futex, ReturnsAtOnceWhenTheWordHasChangedAndElseAfterItsLimit) {
  for (FutexScope scope : {FutexScope::process, FutexScope::machine}) {
    std::atomic<uint32_t> word = 1;
    auto start = Clock::now();
    futex_wait(word, 0u, scope);
    futex_wait(word, 0u, scope, 100s);
    EXPECT_LT(Clock::now() - start, 50s);
    start = Clock::now();
    futex_wait(word, 1u, scope, 20ms);
    EXPECT_GE(Clock::now() - start, 20ms);
  }
}

TEST(Futex, WakesAnotherProcess) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& word = *new (memory) std::atomic<uint32_t>(0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto start = Clock::now();
    while (word == 0) futex_wait(word, 0u, FutexScope::machine, 100s);
    _exit(Clock::now() - start < 50s ? 0 : 1);
  }
  usleep(50000);  // mostly it sleeps by then
  word = 1;
  futex_wake_all(word, FutexScope::machine);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(memory, 4096);
}

}  // namespace
}  // namespace triax
