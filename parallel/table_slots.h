#pragma once

#include <cstdint>
#include <vector>

namespace triax {

/// Numbers the rows of a table that a step looks up, so that their gradients need no room for the others:
/// slots 0, 1, ... in the order in which token ids appear. On the host.
class TableSlots {
 public:
  /// For the rows [first_row, first_row + rows) of a table, as many as a tensor rank has.
  TableSlots(int64_t first_row, int64_t rows) : first_row_(first_row), slot_of_row_(rows, -1) {}
  /// slots[i] is the slot of ids[i], i < count, or -1 where its row is another rank's. slot_ids [capacity]
  /// gets the id of each slot, -1 behind the last. Requires a capacity of at least the distinct ids.
  void assign(const int32_t* ids, int64_t count, int32_t* slots, int32_t* slot_ids, int64_t capacity);

 private:
  int64_t first_row_;
  std::vector<int32_t> slot_of_row_;  // -1 between calls
};

}  // namespace triax
