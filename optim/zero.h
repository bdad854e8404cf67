#pragma once

#include <vector>

#include "parallel/param_store.h"

namespace triax {

/// A run of elements of one parameter in the flat buffers.
struct ParamRange {
  int entry;             ///< in ParamStore::entries()
  int64_t begin, end;    ///< flat offsets
  int64_t first_in_box;  ///< row-major position of `begin` in the entry's box
};

/// Who owns what of the gradients and updates what of the weights (ZeRO-1, Rajbhandari et al. 2020): every
/// bucket of the flat buffers is cut in as many equal parts as there are data ranks. A pure value.
///
/// Data rank r reduces part r. With the optimizer's state shared by groups of N consecutive data ranks, it
/// updates the parts r % N, r % N + N, ...: those that the ranks at its place in all groups have reduced.
class ZeroPartition {
 public:
  /// The parts first, first + step, ... of `parts` of each bucket; adjacent ones are joined.
  ZeroPartition(const ParamStore& params, int parts, int first, int step);

  /// The parts of each bucket, flat offsets, ascending.
  const std::vector<ParamStore::Bucket>& slices() const { return slices_; }
  /// Elements of all slices, padding included.
  int64_t elements() const { return elements_; }
  /// The parts of parameters in the slices, in flat order, without padding.
  const std::vector<ParamRange>& pieces() const { return pieces_; }
  /// Position of a flat offset in a buffer that holds the slices one behind the other.
  int64_t local(int64_t flat) const;

 private:
  std::vector<ParamStore::Bucket> slices_;
  std::vector<ParamRange> pieces_;
  std::vector<int64_t> local_begin_;  // of each slice
  int64_t elements_ = 0;
};

}  // namespace triax
