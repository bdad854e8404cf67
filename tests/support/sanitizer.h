#pragma once

namespace triax::test {

/// True in the tree of the thread sanitizer, which slows some twenty times: tests that train then take fewer
/// steps. Races show in the first ones; numbers are the plain tree's business.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
/// True in that tree and in the address sanitizer's: wrong accesses show in the first steps too.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = thread_sanitizer;
#endif

}  // namespace triax::test
