#include "engine/verify.h"

#include <fmt/format.h>

#include "comm/communicator.h"
#include "core/error.h"
#include "engine/job.h"
#include "launch/commands.h"
#include "parallel/backend.h"

namespace triax {

int verify(const JobArguments& job) {
  int rank = 0, launched = 0;
  if (started_by_mpi(&rank, &launched) && launched > 1)
    fail_usage(
        "verify's ranks are threads of one process; the launcher's {} processes would each do the same: "
        "start it "
        "without mpirun or srun",
        launched);
  bool agrees = true;
  for (const RunConfig& run : runs_to_verify(load_job(job.files, job.sets, {0, job.ranks}))) {
    check_backend(run.training.device);
    check_thread_ranks(run.training.device, world_size(run));
    const VerifyReport report = verify(run);
    fmt::print("{}\n", to_text(report));
    agrees = agrees && report.agrees();
  }
  fmt::print("{}\n", agrees ? "verify: the grid computes what one rank computes"
                            : "verify: the grid does NOT compute what one rank computes");
  return agrees ? exit_done : exit_fault;
}

}  // namespace triax
