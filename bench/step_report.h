#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace triax {

/// What `triax bench step` found, for a person or for a program.
struct StepReport {
  /// Of the rank whose GPU's memory is farthest from its plan, or else of the fullest; bytes.
  struct Memory {
    size_t planned = 0;    ///< RankPlan::device_bytes()
    size_t allocated = 0;  ///< DeviceMemoryUse::most
    size_t states = 0;     ///< weights, gradients and what the optimizer keeps: a part of both
    /// By how much the first GPU's memory in use grew from before the job was built to its last step: of all
    /// its ranks, pages, streams, graphs, code and libraries included.
    size_t taken = 0;
    /// Beside the states.
    double beyond() const { return static_cast<double>(allocated) - static_cast<double>(states); }
  };
  /// One operation of one kind of group in a step, on the GPU's clock; see Recorder::DeviceSeconds.
  struct Communication {
    std::string group, operation;
    double calls = 0, bytes = 0;  ///< a rank's, on average; bytes as in the ledger
    double held = 0;              ///< seconds of a rank's device, on average
    double moving = 0;            ///< seconds, of all ranks' devices together
  };

  std::vector<double> seconds;  ///< of the timed steps, ascending
  double tokens_per_second = 0;
  double flops = 0;  ///< model FLOPs per second
  double gemm_before = 0, gemm_after = 0;
  std::string where;  ///< that these two were measured on
  std::optional<Memory> memory;
  /// Of steps that were run besides, since their clocks cost time; their median.
  double clocked_seconds = 0;
  std::vector<Communication> communication;

  double median() const { return seconds[seconds.size() / 2]; }
  double share() const { return flops / std::max(gemm_before, gemm_after); }
};

void print(std::ostream& out, const StepReport& report);
nlohmann::json to_json(const StepReport& report);

}  // namespace triax
