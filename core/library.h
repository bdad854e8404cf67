#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace triax {

/// Folders where libraries of ours that are opened at run time are looked for: beside the program as it is
/// built, as it is installed, and as it is bundled.
std::vector<std::filesystem::path> library_folders();

/// Where the library of that name is; empty when it is nowhere. `looked`: the paths that were looked at, for
/// a message; may be null.
std::filesystem::path find_library(const std::string& name, std::string* looked = nullptr);

/// The file that NCCL is opened from: what the environment's TRIAX_NCCL_LIBRARY names, else libnccl.so.2
/// wherever the system finds it.
std::string nccl_library_name();

}  // namespace triax
