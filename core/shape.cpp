#include "core/shape.h"

#include <fmt/ranges.h>

namespace triax {

std::string to_string(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace triax
