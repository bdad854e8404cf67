#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace triax {

/// What went wrong, in the terms of the command line's exit status.
enum class ErrorKind {
  fault,    ///< a fault while running: exit 1
  usage,    ///< bad usage or configuration: exit 2
  aborted,  ///< a peer failed first; this rank only follows, and its message is not the cause
};

/// Every failure of Triax. The message says what happened, where, and what to do; the rank is added by
/// whoever runs the rank (local ranks, MPI main), because a rank's code does not know it globally.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message, std::source_location place = std::source_location::current());

  ErrorKind kind() const { return kind_; }
  /// "file.cpp:123", relative to the source folder.
  std::string place() const;
  /// For whoever rethrows it with more words (the rank).
  std::source_location location() const { return place_; }

 private:
  ErrorKind kind_;
  std::source_location place_;
};

/// "file.cpp:123" of any place, relative to the source folder.
std::string to_string(const std::source_location& place);

/// A format string that remembers where it was written.
template <class... Args>
struct Located {
  fmt::format_string<Args...> text;
  std::source_location place;
  template <class S>
  consteval Located(const S& s, std::source_location p = std::source_location::current())  // NOLINT: implicit
      : text(s), place(p) {}
};

/// Throws Error(fault) with a formatted message.
template <class... Args>
[[noreturn]] void fail(std::type_identity_t<Located<Args...>> message, Args&&... args) {
  throw Error(ErrorKind::fault, fmt::format(message.text, std::forward<Args>(args)...), message.place);
}

/// Throws Error(usage): the caller of the program must change something.
template <class... Args>
[[noreturn]] void fail_usage(std::type_identity_t<Located<Args...>> message, Args&&... args) {
  throw Error(ErrorKind::usage, fmt::format(message.text, std::forward<Args>(args)...), message.place);
}

/// Throws Error(fault) unless `condition` holds. The arguments are evaluated always, so keep them cheap.
template <class... Args>
void check(bool condition, std::type_identity_t<Located<Args...>> message, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(ErrorKind::fault, fmt::format(message.text, std::forward<Args>(args)...), message.place);
}

}  // namespace triax
