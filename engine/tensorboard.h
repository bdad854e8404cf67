#pragma once

#include <cstdio>
#include <string>

#include "engine/metrics.h"

namespace triax {

/// Scalars in an event file that TensorBoard reads: records of tensorflow's Event message, each framed by its
/// length and masked CRC-32C (tensorflow/core/lib/io/record_writer.h). A resumed run begins a new file;
/// TensorBoard drops steps of older files that it writes again.
class TensorBoardFile {
 public:
  /// Makes `dir` and a file in it. `first_step`: steps from here on supersede those of older files.
  TensorBoardFile(const std::string& dir, int64_t first_step);
  ~TensorBoardFile();
  TensorBoardFile(const TensorBoardFile&) = delete;
  TensorBoardFile& operator=(const TensorBoardFile&) = delete;
  /// Appends and flushes one step's scalars.
  void append(const StepMetrics& metrics);
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event);

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace triax
