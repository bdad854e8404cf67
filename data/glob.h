#pragma once

#include <string>
#include <vector>

namespace triax {

/// Whether `path` has one of * ? [ and is not the name of a file itself.
bool is_glob(const std::string& path);

/// The files that a pattern of the shell means, in the order of their bytes; folders are left out, and so is
/// the .idx beside a .bin, which name one dataset. Empty when there are none.
std::vector<std::string> expand_glob(const std::string& pattern);

}  // namespace triax
