#include "comm/mpi/order_note.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace triax {

OrderNote note_of(const CommCall& call) {
  OrderNote note{call.sequence, call.count, static_cast<int32_t>(call.op), static_cast<int32_t>(call.dtype),
                 call.detail,   {}};
  const std::string text = describe(call);
  std::memcpy(note.text, text.data(), std::min(text.size(), sizeof note.text - 1));
  return note;
}

void check_same_calls(const std::string& group, int size, const std::function<const OrderNote&(int)>& note) {
  const OrderNote& a = note(0);
  for (int r = 1; r < size; ++r) {
    const OrderNote& b = note(r);
    check(
        a.sequence == b.sequence && a.count == b.count && a.op == b.op && a.dtype == b.dtype &&
            a.detail == b.detail,
        "the ranks of group '{}' differ: rank 0 called {}, but rank {} called {}. All members must call the "
        "same operations with the same dtype, size and reduction or root in the same order",
        group, a.text, r, b.text);
  }
}

}  // namespace triax
