#include <algorithm>
#include <cstring>

#include "comm/reduce.h"
#include "comm/threads/group.h"

namespace triax {
namespace {

constexpr int64_t copy_piece_bytes = 64 * 1024;

bool reduces(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter;
}

void copy(char* out, const char* in, int64_t bytes) {
  if (out != in) std::memcpy(out, in, static_cast<size_t>(bytes));
}

}  // namespace

void plan_pieces(Collective& c) {
  const int n = static_cast<int>(c.parts.size());
  const bool parts = c.call.op == CommOp::all_gather || c.call.op == CommOp::reduce_scatter;
  const int64_t bytes = static_cast<int64_t>(size_of(c.call.dtype));
  c.elements = parts ? c.call.count / n : c.call.count;
  const int64_t grain = reduces(c.call.op) ? reduce_piece_elements : copy_piece_bytes / bytes;
  c.pieces_per_part = (c.elements + grain - 1) / grain;
  c.pieces = c.pieces_per_part * (parts ? n : 1);
}

void run_piece(const Collective& c, int64_t index) {
  const int n = static_cast<int>(c.parts.size());
  const int64_t width = static_cast<int64_t>(size_of(c.call.dtype));
  const int64_t grain = reduces(c.call.op) ? reduce_piece_elements : copy_piece_bytes / width;
  const int part = static_cast<int>(index / c.pieces_per_part);  // 0 where the work has no parts
  const int64_t begin = index % c.pieces_per_part * grain;
  const int64_t count = std::min(grain, c.elements - begin);
  const int64_t offset = begin * width, part_offset = part * c.elements * width;

  switch (c.call.op) {
    case CommOp::all_reduce:
    case CommOp::reduce_scatter: {
      std::vector<const void*> inputs(static_cast<size_t>(n));
      for (int r = 0; r < n; ++r) inputs[r] = c.parts[r].in + part_offset + offset;
      char* result = c.parts[part].out + offset;
      reduce_piece(c.call.dtype, static_cast<ReduceOp>(c.call.detail), inputs.data(), n, count, result);
      if (c.call.op == CommOp::all_reduce)
        for (int r = 1; r < n; ++r) copy(c.parts[r].out + offset, result, count * width);
      break;
    }
    case CommOp::all_gather:
      for (int r = 0; r < n; ++r)
        copy(c.parts[r].out + part_offset + offset, c.parts[part].in + offset, count * width);
      break;
    case CommOp::broadcast:
      for (int r = 0; r < n; ++r)
        copy(c.parts[r].out + offset, c.parts[c.call.detail].out + offset, count * width);
      break;
    default:
      break;
  }
}

}  // namespace triax
