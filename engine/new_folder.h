#pragma once

#include <filesystem>
#include <string>

namespace triax {

/// A folder that appears as a whole: written beside its place under a hidden name, then renamed. What was
/// not committed is removed. A process that is killed may leave ".NAME.tmp-PID".
class NewFolder {
 public:
  /// Throws Error(usage) when `place` is there and not empty, unless `force` and it is a folder that holds
  /// `mark`: that one is replaced at commit().
  NewFolder(const std::filesystem::path& place, const std::string& mark, bool force);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_; }
  /// Makes the names durable and gives the folder its place.
  void commit();

 private:
  std::filesystem::path place_, temporary_;
};

}  // namespace triax
