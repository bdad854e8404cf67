#include "data/glob.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

namespace triax {

namespace fs = std::filesystem;

bool is_glob(const std::string& path) {
  std::error_code error;
  return path.find_first_of("*?[") != std::string::npos && !fs::exists(path, error);
}

std::vector<std::string> expand_glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  std::error_code error;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      if (!fs::is_directory(found.gl_pathv[i], error)) paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const fs::path file(path);
    const bool index_of_another =
        file.extension() == ".idx" &&
        std::binary_search(paths.begin(), paths.end(), fs::path(file).replace_extension(".bin").string());
    if (!index_of_another) files.push_back(path);
  }
  return files;
}

}  // namespace triax
