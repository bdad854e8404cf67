#include "core/error.h"

#include <cstring>

namespace triax {

// NOLINTNEXTLINE(performance-unnecessary-value-param): std::runtime_error copies it in any case
Error::Error(ErrorKind kind, std::string message, std::source_location place)
    : std::runtime_error(message), kind_(kind), place_(place) {}

std::string Error::place() const {
  return to_string(place_);
}

std::string to_string(const std::source_location& place) {
  // Keep "room/file.cpp": the last two components, whatever the build's paths were.
  const char* file = place.file_name();
  const char* end = file + std::strlen(file);
  const char* begin = end;
  for (int slashes = 0; begin != file; --begin) {
    if (begin[-1] == '/' && ++slashes == 2) break;
  }
  return fmt::format("{}:{}", begin, place.line());
}

}  // namespace triax
