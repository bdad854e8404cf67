#pragma once

#include <memory>

#include "comm/communicator.h"
#include "data/sampler.h"
#include "engine/config.h"
#include "engine/resume.h"

namespace triax {

/// The token files of a job and the order of their samples.
struct JobData {
  explicit JobData(const RunConfig& config);
  std::unique_ptr<SampleOrder> train;
  std::unique_ptr<SampleOrder> validation;  ///< null without validation data
  /// Of every source's content; reads the files.
  DataFingerprints fingerprints() const;
};

/// Whether all training files are text, which is read as bytes: data.tokenizer's default is then right also
/// where nobody chose it. False without training files.
bool trained_on_text(const RunConfig& config);

/// The same for all ranks, though only rank 0 reads the files. Collective; what fails there all throw.
DataFingerprints shared_fingerprints(const JobData& data, Communicator& world);

}  // namespace triax
