#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace triax {

/// A file mapped for reading. Usage errors, naming path and reason: missing, a directory, not a plain file,
/// no permission, empty.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace triax
