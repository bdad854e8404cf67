#include "optim/zero.h"

#include <algorithm>

namespace triax {

ZeroPartition::ZeroPartition(const ParamStore& params, int parts, int first, int step) {
  for (const ParamStore::Bucket& bucket : params.buckets()) {
    const int64_t length = (bucket.end - bucket.begin) / parts;
    const size_t before = slices_.size();
    for (int part = first; part < parts; part += step) {
      const int64_t begin = bucket.begin + part * length;
      if (slices_.size() > before && slices_.back().end == begin)
        slices_.back().end += length;
      else
        slices_.push_back({begin, begin + length});
    }
  }
  for (const ParamStore::Bucket& slice : slices_) {
    for (size_t i = 0; i < params.entries().size(); ++i) {
      const ParamStore::Entry& entry = params.entries()[i];
      if (entry.primary >= 0) continue;  // the primary owns the weight
      // Rows that pad the box stay zero and belong to nobody.
      const int64_t begin = std::max(slice.begin, entry.offset);
      const int64_t end = std::min(slice.end, entry.offset + entry.box.numel());
      if (begin >= end) continue;
      pieces_.push_back({static_cast<int>(i), begin, end, begin - entry.offset});
    }
    local_begin_.push_back(elements_);
    elements_ += slice.end - slice.begin;
  }
}

int64_t ZeroPartition::local(int64_t flat) const {
  const auto after =
      std::upper_bound(slices_.begin(), slices_.end(), flat,
                       [](int64_t f, const ParamStore::Bucket& slice) { return f < slice.begin; });
  check(after != slices_.begin() && flat < std::prev(after)->end,
        "element {} is not in this rank's ZeRO slices", flat);
  return local_begin_[static_cast<size_t>(after - slices_.begin() - 1)] + flat - std::prev(after)->begin;
}

}  // namespace triax
