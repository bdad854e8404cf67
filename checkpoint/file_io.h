#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace triax {

/// Writes a new file from its first byte to its last and computes its CRC-32C from the bytes in memory as
/// they are handed to write(2), never by reading back. Small parts are gathered in a buffer, large ones go
/// out directly. Errors name the file, the position and the system's reason.
class FileWriter {
 public:
  /// Creates the file; one that is there already is an error.
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();  ///< closes; without finish() the file is incomplete
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void append(const void* data, size_t bytes);
  /// Writes what is buffered, fsyncs and closes.
  void finish();

  int64_t size() const { return size_; }  ///< bytes appended
  uint32_t crc() const { return crc_; }   ///< of the bytes appended

 private:
  void flush();
  void write_out(const unsigned char* data, size_t bytes);

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<unsigned char> buffer_;
  size_t buffered_ = 0;
  int64_t size_ = 0, written_ = 0;
  uint32_t crc_ = 0;
};

/// A file open for reading; errors name it.
class FileReader {
 public:
  explicit FileReader(std::filesystem::path path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t size() const { return size_; }
  /// Reads exactly `bytes` bytes at `offset`.
  void read(int64_t offset, void* out, size_t bytes) const;
  /// Lets the system fetch these bytes while something else is done.
  void fetch(int64_t offset, int64_t bytes) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

/// The whole content of a file.
std::string read_file(const std::filesystem::path& path);

/// Replaces `path` atomically by a file with this content: temporary neighbour, fsync, rename, fsync of the
/// folder.
void replace_file(const std::filesystem::path& path, std::string_view content);

/// Makes the names in a folder durable.
void sync_folder(const std::filesystem::path& folder);

/// rename(2) with an error that names both.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// The system's text for an errno value.
std::string errno_text(int error);

}  // namespace triax
