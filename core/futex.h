#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace triax {

// Sleeping on a word by the system's own calls (futex(2)). std::atomic's wait() and notify() keep count of
// who waits in a table of which every library has one, and a word may be shared with what another library, or
// another process, has made.

/// Who waits on a word and wakes who does: threads of this process, or also of others that map its memory.
enum class FutexScope { process, machine };

/// Without a limit.
inline constexpr std::chrono::nanoseconds futex_for_ever{-1};

/// Sleeps while the 32 bits at `word` are `old`, until somebody wakes it, a signal comes, or `longest` has
/// passed; whoever changes them must call futex_wake_all().
void futex_wait(const void* word, uint32_t old, FutexScope scope, std::chrono::nanoseconds longest);
void futex_wake_all(const void* word, FutexScope scope);

template <class T>
void futex_wait(const std::atomic<T>& word, T old, FutexScope scope,
                std::chrono::nanoseconds longest = futex_for_ever) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  futex_wait(static_cast<const void*>(&word), static_cast<uint32_t>(old), scope, longest);
}
template <class T>
void futex_wake_all(const std::atomic<T>& word, FutexScope scope) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  futex_wake_all(static_cast<const void*>(&word), scope);
}

}  // namespace triax
