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
  /// The parts of parameters in the slices, in flat order, without padding. `local` is the position of
  /// `begin` in a buffer that holds the slices one behind the other.
  struct Piece : ParamRange {
    int64_t local;
  };
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::vector<ParamStore::Bucket> slices_;
  std::vector<Piece> pieces_;
  int64_t elements_ = 0;
};

}  // namespace triax
