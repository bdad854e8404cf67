#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "checkpoint/file_io.h"
#include "checkpoint/manifest.h"

namespace triax {

/// Reads whole tensors of a checkpoint piece by piece, whatever grid wrote it, without holding one of them:
/// for tools of one process.
class TensorReader {
 public:
  explicit TensorReader(const CheckpointInfo& info);

  const CheckpointInfo& info() const { return info_; }
  /// The tensor of that path in the view ("model/embed.tokens.weight"); null when there is none.
  const TensorRecord* find(const std::string& path) const;
  /// The row-major positions [begin, end) of a tensor of info(). Errors name the file.
  void read(const TensorRecord& tensor, int64_t begin, int64_t end, float* out);
  /// Calls visit(begin, end, data) over all of a tensor in ascending parts that fit a cache, and compares its
  /// logical hash with the manifest's at the end: throws DamagedCheckpoint then, naming the tensor.
  template <class Visit>
  void each(const TensorRecord& tensor, const Visit& visit) {
    uint64_t hash = 0;
    for (int64_t begin = 0, count = tensor.shape.numel(); begin < count; begin += part) {
      const int64_t end = std::min(begin + part, count);
      buffer_.resize(static_cast<size_t>(end - begin));
      read(tensor, begin, end, buffer_.data());
      hash += hash_of(tensor, begin, end, buffer_.data());
      visit(begin, end, static_cast<const float*>(buffer_.data()));
    }
    check_hash(tensor, hash);
  }
  static uint64_t hash_of(const TensorRecord& tensor, int64_t begin, int64_t end, const float* data);
  void check_hash(const TensorRecord& tensor, uint64_t hash) const;

  static constexpr int64_t part = int64_t{1} << 18;  ///< elements

 private:
  struct Source {
    const BoxRecord* box;
    const FileRecord* file;
  };
  const FileReader& open(const FileRecord& file);

  CheckpointInfo info_;
  std::map<std::string, size_t> index_;
  std::vector<std::vector<Source>> sources_;  // by tensor
  std::map<const FileRecord*, std::unique_ptr<FileReader>> files_;
  std::vector<float> buffer_, rows_;
};

}  // namespace triax
