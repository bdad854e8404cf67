#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/config.h"

namespace triax {

/// What a key's change means for a job that resumes.
enum class ChangeClass {
  free,         ///< how it is computed and what is logged
  mathematics,  ///< what is computed: needs --accept-changes
  impossible,   ///< the state does not fit: the model's shape
};

struct ConfigChange {
  std::string key, before, after;
  ChangeClass kind;
  std::string follows = {};  ///< the key that this one is derived from, and changes with; else empty
};

/// Content of the data, by "train.0", "validation.1": a file may move as long as it reads the same.
using DataFingerprints = std::map<std::string, std::string>;

/// Every key that differs between the configuration a checkpoint was written with and this job's. Data is
/// compared by content, not by path; what the architecture does not use is not compared.
std::vector<ConfigChange> changes_on_resume(const RunConfig& before, const DataFingerprints& data_before,
                                            const RunConfig& now, const DataFingerprints& data_now);

/// The changes as a list by class, "key: before -> after"; empty without any.
std::string describe(const std::vector<ConfigChange>& changes);

/// Throws Error(usage) when a change is impossible, or is mathematics and not accepted; the message lists
/// them and says what to do.
void check_changes(const std::vector<ConfigChange>& changes, bool accept_changes);

}  // namespace triax
