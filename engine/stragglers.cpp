#include "engine/stragglers.h"

#include <algorithm>
#include <cmath>

#include "engine/job.h"

namespace triax {

namespace {

double median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

bool compares_times(const RunConfig& config) {
  return config.logging.straggler_factor > 0 && world_size(config) > 1;
}

std::vector<RankTimes> share_times(Communicator& world, const RankTimes& mine) {
  const double in[2] = {mine.compute, mine.wait};
  std::vector<double> all(2 * static_cast<size_t>(world.size()));
  world.all_gather(Tensor::of(in, {2}), Tensor::of(all.data(), {static_cast<int64_t>(all.size())})).wait();
  std::vector<RankTimes> times(static_cast<size_t>(world.size()));
  for (size_t r = 0; r < times.size(); ++r) times[r] = {all[2 * r], all[2 * r + 1]};
  return times;
}

TimesSummary summary_of(const std::vector<RankTimes>& times) {
  TimesSummary summary;
  std::vector<double> compute;
  compute.reserve(times.size());
  for (const RankTimes& t : times) compute.push_back(t.compute);
  const auto slowest = std::max_element(compute.begin(), compute.end());
  summary.slowest_rank = static_cast<int>(slowest - compute.begin());
  summary.compute_max = *slowest;
  summary.compute_median = median(compute);
  return summary;
}

StragglerWatch::StragglerWatch(std::vector<int> stages, double factor, int patience)
    : stages_(std::move(stages)), factor_(factor), patience_(patience), states_(stages_.size()) {}

// The median compute time of the others of its stage; NaN when there are none.
double StragglerWatch::usual(const std::vector<RankTimes>& times, size_t rank) const {
  std::vector<double> others;
  for (size_t r = 0; r < times.size(); ++r)
    if (r != rank && stages_[r] == stages_[rank]) others.push_back(times[r].compute);
  return others.empty() ? std::nan("") : median(std::move(others));
}

std::vector<StragglerWatch::Finding> StragglerWatch::add(const std::vector<RankTimes>& times,
                                                         double seconds) {
  std::vector<Finding> findings;
  if (factor_ == 0) return findings;
  for (size_t r = 0; r < times.size(); ++r) {
    const double others = usual(times, r), mine = times[r].compute;
    const bool slow = mine > factor_ * others && mine - others > 0.1 * seconds;  // false with NaN
    State& state = states_[r];
    state.row = slow == state.straggler ? 0 : state.row + 1;
    if (state.row < patience_) continue;
    state = {slow, 0};
    findings.push_back({static_cast<int>(r), slow, mine, others, patience_});
  }
  return findings;
}

std::vector<int> stages_of(const Grid& grid) {
  std::vector<int> stages;
  stages.reserve(static_cast<size_t>(grid.size()));
  for (int r = 0; r < grid.size(); ++r) stages.push_back(grid.coordinate(r, "pp"));
  return stages;
}

std::string describe(const StragglerWatch::Finding& f, int64_t steps) {
  if (!f.slow)
    return fmt::format(
        "rank {} is as fast as the others again: {:.4g} s of computing a step, the others {:.4g} s", f.rank,
        f.compute, f.usual);
  return fmt::format(
      "straggler: rank {} computes for {:.4g} s a step where the ranks with the same work take {:.4g} s "
      "({:.1f} "
      "times), in {} windows of {} steps by now; look at its host, which its log names",
      f.rank, f.compute, f.usual, f.compute / f.usual, f.windows, steps);
}

}  // namespace triax
