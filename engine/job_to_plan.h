#pragma once

#include "engine/job.h"

namespace triax {

/// load_job() for a plan, which reads no data: a source whose file is not here is no violation; `absent` gets
/// a sentence for each.
RunConfig load_job_to_plan(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                           const JobRanks& ranks, std::vector<std::string>& absent);

}  // namespace triax
