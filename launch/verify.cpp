#include "engine/verify.h"

#include <fmt/format.h>

#include "engine/job.h"
#include "launch/commands.h"

namespace triax {

int verify(const JobArguments& job) {
  const VerifyReport report = verify(load_job(job.files, job.sets, {0, job.ranks}));
  fmt::print("{}", to_text(report));
  fmt::print("{}\n", report.agrees() ? "verify: the grid computes what one rank computes"
                                     : "verify: the grid does NOT compute what one rank computes");
  return report.agrees() ? exit_done : exit_fault;
}

}  // namespace triax
