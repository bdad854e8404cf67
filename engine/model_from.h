#pragma once

#include "core/config_tree.h"
#include "core/fields.h"

namespace triax {

/// Fills in the job's `model` from the config.json of `model.from`: keys that the job gives must agree with
/// it, and are problems by name where they do not; hidden_dropout and initializer_range are the job's own.
/// When that folder is gone and the run has saved checkpoints since it began with it, the newest of those
/// tells the model. Returns whether the section could be filled in, or nothing was to be done.
bool fill_model_from(ConfigNode& root, FieldReport& report);

}  // namespace triax
