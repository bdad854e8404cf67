#pragma once

#include <cstdint>
#include <string>

#include "engine/append_file.h"
#include "engine/config.h"
#include "engine/metrics.h"

namespace triax {

/// Scalars and the configuration in an event file that TensorBoard reads: records of tensorflow's Event
/// message, each framed by its length and masked CRC-32C (tensorflow/core/lib/io/record_writer.h). A resumed
/// run begins a new file; TensorBoard drops steps of older files that it writes again.
class TensorBoardFile {
 public:
  /// Makes `dir` and a file in it. `first_step`: steps from here on supersede those of older files. `report`:
  /// see AppendFile.
  TensorBoardFile(const std::string& dir, int64_t first_step, AppendFile::Report report);
  /// The job's effective configuration: as text ("configuration"), and key by key for the HPARAMS page.
  void describe(const RunConfig& config);
  /// Appends one step's scalars, handed to the operating system at once.
  void append(const StepMetrics& metrics);
  /// After the last step: a fault when there are events that still can't be written.
  void finish() { file_.finish(); }
  const std::string& path() const { return file_.path(); }

 private:
  void write(const std::string& event);

  AppendFile file_;
};

}  // namespace triax
