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

/// Who updates what (ZeRO-1, Rajbhandari et al. 2020): every bucket of the flat buffers is cut in `shards`
/// equal slices, slice i of each belongs to data rank i. A pure value.
class ZeroPartition {
 public:
  ZeroPartition(const ParamStore& params, int shards, int shard);

  /// This shard's slice of each bucket, flat offsets.
  const std::vector<ParamStore::Bucket>& slices() const { return slices_; }
  /// Elements of all slices.
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
