#pragma once

#include "launch/cli.h"

namespace triax {

/// `triax bench ...`: joins launch's parser with the measurements of bench, which do not know each other.
void add_bench(CLI::App& app, const Choose& choose);

}  // namespace triax
