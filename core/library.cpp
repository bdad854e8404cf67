#include "core/library.h"

#include <cstdlib>

namespace triax {

namespace fs = std::filesystem;

std::vector<fs::path> library_folders() {
  std::error_code error;
  const fs::path home = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {home / "lib", home, home.parent_path() / "lib" / "triax", home.parent_path() / "lib"};
}

fs::path find_library(const std::string& name, std::string* looked) {
  for (const fs::path& folder : library_folders()) {
    const fs::path path = folder / name;
    if (looked) *looked += (looked->empty() ? "" : ", ") + path.string();
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path;
  }
  return {};
}

std::string nccl_library_name() {
  const char* named = std::getenv("TRIAX_NCCL_LIBRARY");
  return named && *named ? named : "libnccl.so.2";
}

}  // namespace triax
