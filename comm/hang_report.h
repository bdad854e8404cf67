#pragma once

#include <string>
#include <vector>

#include "comm/rank_record.h"

namespace triax {

/// What the records of all ranks come to when one has waited for too long.
struct HangReport {
  /// Ranks that others wait for and that wait for nobody: they compute, are in a phase, or gave no answer.
  /// Empty when the ranks wait for each other, or messages get lost.
  std::vector<int> culprits;
  /// Every culprit has announced what it is doing.
  bool announced = false;
  /// For how long the oldest of those phases, and the longest wait, have lasted.
  double phase_seconds = 0, wait_seconds = 0;
  /// Sentences, a line each: which rank is missing from which operation, who waits in it for how long, and
  /// where the missing one is instead; calls that do not fit each other; circles of waits; then where all
  /// others are.
  std::string text;
};

/// `records`: one of each rank, by rank, those that did not answer included; taken at about one time.
HangReport explain_hang(const std::vector<RankRecord>& records);

}  // namespace triax
