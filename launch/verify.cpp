#include "engine/verify.h"

#include <fmt/format.h>

#include "engine/job.h"
#include "launch/commands.h"

namespace triax {

int verify(const JobArguments& job) {
  bool agrees = true;
  for (const RunConfig& run : runs_to_verify(load_job(job.files, job.sets, {0, job.ranks}))) {
    const VerifyReport report = verify(run);
    fmt::print("{}\n", to_text(report));
    agrees = agrees && report.agrees();
  }
  fmt::print("{}\n", agrees ? "verify: the grid computes what one rank computes"
                            : "verify: the grid does NOT compute what one rank computes");
  return agrees ? exit_done : exit_fault;
}

}  // namespace triax
