#pragma once

#include <iosfwd>
#include <string>

namespace triax {

/// Looks at a run, also one that is still going: writes `run_dir`/loss.svg (training and validation loss
/// against the step) and prints its path, the same curves drawn with characters, and a table of last and best
/// values. Everything comes from metrics.jsonl and job.yaml. A last line that is still being written is
/// ignored; other lines that can't be read are skipped and counted. Returns the exit status, 0; throws
/// Error(usage) when there is nothing to report on, Error(fault) when the picture can't be written.
int report(const std::string& run_dir, std::ostream& out);

}  // namespace triax
