#include "engine/startup.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;

// When the process of /proc/<who> began; now where the system does not tell.
Clock::time_point start_of(const std::string& who) {
  const auto now = Clock::now();
  // Field 22 of stat: ticks from the boot to the start; the name in field 2 may hold spaces.
  std::ifstream file("/proc/" + who + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return now;
  std::istringstream fields(text.substr(name_end + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field) fields >> word;
  timespec boot{};
  if (!fields || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return now;
  const double started = std::stod(word) / static_cast<double>(sysconf(_SC_CLK_TCK));
  const double age = static_cast<double>(boot.tv_sec) + 1e-9 * static_cast<double>(boot.tv_nsec) - started;
  return age < 0 ? now
                 : now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(age));
}

}  // namespace

Clock::time_point process_start() {
  return start_of("self");
}

Clock::time_point launcher_start() {
  const std::string parent = std::to_string(getppid());
  std::ifstream file("/proc/" + parent + "/comm");
  std::string name;
  std::getline(file, name);
  // Not prted and the like, which may have been there for days.
  const std::set<std::string> launchers{"mpirun",  "mpirun.openmpi",  "mpirun.mpich",  "mpirun_rsh",
                                        "mpiexec", "mpiexec.openmpi", "mpiexec.hydra", "orterun",
                                        "prterun", "orted",           "slurmstepd",    "hydra_pmi_proxy"};
  return launchers.count(name) ? std::min(start_of(parent), process_start()) : process_start();
}

nlohmann::json StartupClock::over_ranks(Communicator& world) const {
  std::vector<int64_t> mine;  // nanoseconds
  mine.reserve(phases_.size() + 1);
  for (const auto& [name, seconds] : phases_) mine.push_back(static_cast<int64_t>(1e9 * seconds));
  mine.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - begin_).count());
  std::vector<int64_t> longest(mine.size()), sum(mine.size());
  const auto all = [&](std::vector<int64_t>& numbers) {
    return Tensor::of(numbers.data(), {static_cast<int64_t>(numbers.size())});
  };
  world.all_reduce(all(mine), all(longest), ReduceOp::max).wait();
  world.all_reduce(all(mine), all(sum), ReduceOp::sum).wait();
  if (world.rank()) return nullptr;
  nlohmann::json phases = nlohmann::json::array();
  for (size_t i = 0; i < phases_.size(); ++i)
    phases.push_back({{"name", phases_[i].first},
                      {"longest", 1e-9 * static_cast<double>(longest[i])},
                      {"mean", 1e-9 * static_cast<double>(sum[i]) / world.size()}});
  return {{"seconds", 1e-9 * static_cast<double>(longest.back())}, {"phases", phases}};
}

}  // namespace triax
