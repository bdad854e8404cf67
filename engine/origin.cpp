#include "engine/origin.h"

namespace triax {

namespace fs = std::filesystem;

namespace {

// Without links as far as the path exists.
fs::path resolved(const fs::path& path) {
  std::error_code failed;
  const fs::path text = path.has_filename() ? path : path.parent_path();
  const fs::path real = fs::weakly_canonical(text, failed);
  return failed ? text.lexically_normal() : real;
}

}  // namespace

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored) || resolved(a) == resolved(b);
}

bool lies_in(const fs::path& checkpoint, const fs::path& dir) {
  return same_folder(resolved(checkpoint).parent_path(), dir);
}

bool began_with(const CheckpointInfo& own, const fs::path& folder) {
  if (!own.extra.contains("origin")) return false;
  const nlohmann::json& origin = own.extra["origin"];
  return origin.is_object() && origin.contains("folder") &&
         same_folder(origin["folder"].get<std::string>(), folder);
}

}  // namespace triax
