#include "engine/startup.h"

#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>

namespace triax {

std::chrono::steady_clock::time_point process_start() {
  const auto now = std::chrono::steady_clock::now();
  // Field 22 of /proc/self/stat: ticks from the boot to the start; the name in field 2 may hold spaces.
  std::ifstream file("/proc/self/stat");
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
  if (age < 0) return now;
  return now -
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(age));
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
