#pragma once

namespace triax::test {

/// True in the tree of the thread sanitizer, which slows some twenty times: tests that train then take fewer
/// steps. Races show in the first ones; numbers are the plain tree's business.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif

}  // namespace triax::test
