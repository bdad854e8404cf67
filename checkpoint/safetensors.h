#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_io.h"
#include "checkpoint/stored_type.h"

namespace triax {

/// One tensor of a safetensors file.
struct SafeTensor {
  std::string name;
  std::string dtype;                ///< as the file says it: "F32", "I64", ...
  std::vector<int64_t> shape = {};  ///< outermost first
  int64_t begin = 0, end = 0;       ///< its bytes, from the beginning of the file

  int64_t numel() const;
  /// How its elements are read; none where Triax does not read them ("I64").
  std::optional<StoredType> type() const;
};

/// A safetensors file (https://github.com/huggingface/safetensors: 8 bytes of little-endian length, a JSON
/// header, the tensors' bytes), opened for reading. The header is checked to the last byte: types, sizes,
/// names given twice, overlaps, holes, a file that ends early or late. Errors name file and tensor. Of the
/// data only what is asked for is read.
class SafeTensorsFile {
 public:
  explicit SafeTensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }  ///< in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafeTensor* find(std::string_view name) const;
  /// Elements [first, first + count) of a tensor in row-major order.
  void read(const SafeTensor& tensor, int64_t first, int64_t count, float* out) const;

 private:
  void parse(const std::string& header, int64_t data_begin);
  void check_places(int64_t data_begin) const;

  std::filesystem::path path_;
  FileReader file_;
  std::vector<SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, size_t, std::less<>> index_;
  mutable std::vector<char> buffer_;
};

/// Writes a safetensors file from its first byte to its last.
class SafeTensorsWriter {
 public:
  struct Item {
    std::string name;
    std::vector<int64_t> shape;
  };
  /// Creates the file and writes the header; all tensors have one type.
  SafeTensorsWriter(const std::filesystem::path& path, std::vector<Item> items, StoredType type,
                    const std::map<std::string, std::string>& metadata);
  /// The next elements; the items follow one behind the other, row-major. Throws Error naming the tensor when
  /// a number is too large for the type.
  void append(const float* data, int64_t count);
  /// Makes the file durable. All elements must have come.
  void finish();

 private:
  std::filesystem::path path_;
  FileWriter file_;
  std::vector<Item> items_;
  StoredType type_;
  size_t item_ = 0;
  int64_t left_ = 0;  // elements of the present item
  std::vector<char> buffer_;

  void next_item();
};

}  // namespace triax
