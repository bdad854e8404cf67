#include "optim/zero.h"

#include <algorithm>

namespace triax {

ZeroPartition::ZeroPartition(const ParamStore& params, int shards, int shard) {
  for (const ParamStore::Bucket& bucket : params.buckets()) {
    const int64_t length = (bucket.end - bucket.begin) / shards;
    const ParamStore::Bucket slice{bucket.begin + shard * length, bucket.begin + (shard + 1) * length};
    for (size_t i = 0; i < params.entries().size(); ++i) {
      const ParamStore::Entry& entry = params.entries()[i];
      if (entry.primary >= 0) continue;  // the primary owns the weight
      // Rows that pad the box stay zero and belong to nobody.
      const int64_t begin = std::max(slice.begin, entry.offset);
      const int64_t end = std::min(slice.end, entry.offset + entry.box.numel());
      if (begin >= end) continue;
      pieces_.push_back(
          {{static_cast<int>(i), begin, end, begin - entry.offset}, elements_ + begin - slice.begin});
    }
    slices_.push_back(slice);
    elements_ += length;
  }
}

}  // namespace triax
