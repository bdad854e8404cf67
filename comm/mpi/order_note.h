#pragma once

#include <functional>
#include <string>

#include "comm/recorder.h"

namespace triax {

/// What ranks compare of their calls of one collective; of processes, so it has no pointers.
struct OrderNote {
  uint64_t sequence;
  int64_t count;
  int32_t op, dtype, detail;
  char text[164];  // the call in words
};
OrderNote note_of(const CommCall& call);

/// Throws a fault when the notes of ranks 0 to size - 1 differ; all ranks name the same pair, rank 0 and the
/// first that differs from it.
void check_same_calls(const std::string& group, int size, const std::function<const OrderNote&(int)>& note);

}  // namespace triax
