#pragma once

#include <string>
#include <vector>

#include "core/fields.h"
#include "engine/config.h"

namespace triax {

/// Adds a sentence for every rule between keys that a resolved job breaks, with the values that would do
/// (docs: "Legal jobs"). Rules about keys that are bad already are left out. `ranks` is the world size that
/// was asked for and `ranks_from` says by whom ("--ranks"); 0: by nobody.
void check_legal(const RunConfig& config, int ranks, const std::string& ranks_from, FieldReport& report);

/// The files of data, and of the checkpoint to resume from: there, readable, with a whole sample.
void check_files(const RunConfig& config, FieldReport& report);

}  // namespace triax
