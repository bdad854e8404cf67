#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace triax {

/// A file that grows by whole records while a run goes on. A disk that is full for a while (a checkpoint is
/// being written, say) costs no record and ends no run: what can't be written is kept in memory and tried
/// again with the next record. For one thread at a time.
class AppendFile {
 public:
  /// Gets a sentence when a write fails for the first time since the last one that did not.
  using Report = std::function<void(const std::string&)>;

  /// Opens `path` for appending, makes it where there is none. Throws Error when that can't be done.
  AppendFile(std::string path, Report report);
  /// Tries a last time to write what is kept.
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Hands the record, and those that are kept, to the operating system, in order and all or none: a torn
  /// one is cut off again.
  void append(std::string_view record);
  /// Once after the last record: throws Error when there are records that still can't be written.
  void finish();
  const std::string& path() const { return path_; }

 private:
  bool write_kept();

  std::string path_;
  Report report_;
  int file_ = -1;
  std::string kept_;
  std::optional<long long> torn_at_;  // the file's length without a torn record that could not be cut off yet
  bool failing_ = false;
};

}  // namespace triax
