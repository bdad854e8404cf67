#include "core/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace triax {
namespace {

int flags(FutexScope scope) {
  return scope == FutexScope::process ? FUTEX_PRIVATE_FLAG : 0;
}

}  // namespace

void futex_wait(const void* word, uint32_t old, FutexScope scope, std::chrono::nanoseconds longest) {
  constexpr long second = 1000000000;
  const timespec limit{longest.count() / second, longest.count() % second};
  syscall(SYS_futex, word, FUTEX_WAIT | flags(scope), old, longest < longest.zero() ? nullptr : &limit,
          nullptr, 0);
}

void futex_wake_all(const void* word, FutexScope scope) {
  syscall(SYS_futex, word, FUTEX_WAKE | flags(scope), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace triax
