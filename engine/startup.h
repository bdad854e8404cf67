#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace triax {

/// When this process began, on the steady clock, to the hundredth of a second; now where the system does not
/// tell.
std::chrono::steady_clock::time_point process_start();
/// When the launcher of an MPI job began that has started this process: mpirun or, on other hosts, its daemon
/// there; the daemon of srun's step. process_start() where the parent of this process is none that is known
/// to live for one job alone.
std::chrono::steady_clock::time_point launcher_start();

/// What a rank's start took, phase by phase, up to the end of its first step. Phases follow each other.
class StartupClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins with a phase that lasted from `begin` until now.
  StartupClock(Clock::time_point begin, std::string first_phase) : begin_(begin), at_(begin) {
    phase_done(std::move(first_phase));
  }
  /// The phase that began with the end of the one before ends here.
  void phase_done(std::string name) {
    const auto now = Clock::now();
    phases_.emplace_back(std::move(name), std::chrono::duration<double>(now - at_).count());
    at_ = now;
  }
  /// A member's initial value, which is a phase of its own.
  template <class Make>
  auto timed(const char* name, Make&& make) -> decltype(make()) {
    const End end{*this, name};
    return make();
  }
  /// {"seconds": of the slowest rank, "phases": [{"name", "longest", "mean"}]}: seconds, longest and mean
  /// over ranks. All ranks have the same phases. On rank 0; null elsewhere. Collective.
  nlohmann::json over_ranks(Communicator& world) const;

 private:
  struct End {
    StartupClock& clock;
    const char* name;
    ~End() { clock.phase_done(name); }
  };
  Clock::time_point begin_, at_;
  std::vector<std::pair<std::string, double>> phases_;
};

}  // namespace triax
