#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/config.h"
#include "parallel/grid.h"

namespace triax {

/// Where a rank's time went, in seconds: all that is not waiting for others or moving messages, and that.
struct RankTimes {
  double compute = 0, wait = 0;
};

/// Everyone's times, by rank: 16 bytes from each. Collective.
std::vector<RankTimes> share_times(Communicator& world, const RankTimes& mine);

/// Whether a run shares them at all: with more than one rank and a logging.straggler_factor.
bool compares_times(const RunConfig& config);

/// What the times of one window come to, for metrics.
struct TimesSummary {
  int slowest_rank = 0;
  double compute_max = 0, compute_median = 0;  ///< over all ranks
};
TimesSummary summary_of(const std::vector<RankTimes>& times);

/// Finds ranks that stay slower than those that do the same work, the ranks of their pipeline stage. A rank
/// is slow in a window when its compute time exceeds `factor` times the median of the others of its stage,
/// and by more than a tenth of the window: less than that holds nobody up. A straggler is slow in `patience`
/// windows in a row; it is one until it has been as fast as the others for as many. A rank that is alone in
/// its stage has nobody to be compared with. Pure: the same numbers lead to the same findings on every rank.
class StragglerWatch {
 public:
  /// `stages`: the pipeline stage of every rank. A factor of 0 finds nothing.
  StragglerWatch(std::vector<int> stages, double factor, int patience);

  struct Finding {
    int rank = 0;
    bool slow = true;               ///< false: a straggler has caught up
    double compute = 0, usual = 0;  ///< seconds in this window: its own, and the median of the others
    int windows = 0;                ///< in a row
  };
  /// Of one window, of `seconds` in the same unit (a sum, or the mean of a step); what begins or ends with
  /// it.
  std::vector<Finding> add(const std::vector<RankTimes>& times, double seconds);

 private:
  struct State {
    bool straggler = false;
    int row = 0;  // windows in a row that speak for the other state
  };
  double usual(const std::vector<RankTimes>& times, size_t rank) const;

  std::vector<int> stages_;
  double factor_;
  int patience_;
  std::vector<State> states_;
};

/// The pipeline stage of every rank.
std::vector<int> stages_of(const Grid& grid);
/// The sentence for the console and the log; windows of `steps` steps, times of one of them.
std::string describe(const StragglerWatch::Finding& finding, int64_t steps);

}  // namespace triax
