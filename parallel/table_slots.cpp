#include "parallel/table_slots.h"

#include <algorithm>

#include "core/error.h"

namespace triax {

void TableSlots::assign(const int32_t* ids, int64_t count, int32_t* slots, int32_t* slot_ids,
                        int64_t capacity) {
  const auto rows = static_cast<int64_t>(slot_of_row_.size());
  int32_t used = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = ids[i] - first_row_;
    slots[i] = -1;
    if (row < 0 || row >= rows) continue;
    int32_t& slot = slot_of_row_[static_cast<size_t>(row)];
    if (slot < 0) {
      check(used < capacity, "{} slots are too few for the rows that {} tokens look up", capacity, count);
      slot_ids[used] = ids[i];
      slot = used++;
    }
    slots[i] = slot;
  }
  std::for_each(slot_ids, slot_ids + used,
                [&](int32_t id) { slot_of_row_[static_cast<size_t>(id - first_row_)] = -1; });
  std::fill(slot_ids + used, slot_ids + capacity, -1);
}

}  // namespace triax
