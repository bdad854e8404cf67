#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/state.h"

namespace triax {

/// What the ranks' pieces make together.
struct SavePlan {
  std::vector<TensorRecord> tensors;  ///< by kind, then in natural order of the names; hashes not filled in
  std::vector<std::vector<int>> tensor;  ///< [rank][piece]: index of its tensor
  std::vector<std::vector<Box>> boxes;   ///< [rank][piece]
};

/// A rank's pieces without their data, as bytes for another rank.
std::string describe_pieces(std::span<const StatePiece> pieces);

/// Puts the descriptions of all ranks together and checks that they cover each logical tensor exactly once.
/// Throws an Error that names tensor, ranks and boxes of a gap, an overlap or a contradiction.
SavePlan plan_save(const std::vector<std::string>& descriptions);

}  // namespace triax
