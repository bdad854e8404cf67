#pragma once

#include <iosfwd>
#include <string>

namespace triax {

/// Looks at a run, also one that is still going: writes `run_dir`/report.html (one page with all there is to
/// see, sufficient to itself) and loss.svg (training and validation loss against the step), and prints their
/// paths, the loss drawn with characters, and a table of last and best values. The curves come from
/// metrics.jsonl; the rest of the page from what else the folder holds (RunRecord, checkpoints, traces), and
/// is left out where there is none. A last line that is still being written is
/// ignored; other lines that can't be read are skipped and counted. Returns the exit status, 0; throws
/// Error(usage) when there is nothing to report on, Error(fault) when a file can't be written.
int report(const std::string& run_dir, std::ostream& out);

}  // namespace triax
