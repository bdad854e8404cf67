#include "parallel/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace triax {

Box whole(const Shape& global) {
  Box box{global, global};
  for (int i = 0; i < global.rank(); ++i) box.offset[i] = 0;
  return box;
}

Box intersect(const Box& a, const Box& b) {
  check(a.extent.rank() == b.extent.rank(), "boxes {} and {} are of different tensors", to_string(a),
        to_string(b));
  Box c = a;
  for (int i = 0; i < a.extent.rank(); ++i) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    c.offset[i] = begin;
    c.extent[i] = std::max<int64_t>(end - begin, 0);
  }
  return c;
}

bool empty(const Box& box) {
  return box.numel() == 0;
}

std::string to_string(const Box& box) {
  std::vector<std::string> parts;
  parts.reserve(static_cast<size_t>(box.extent.rank()));
  for (int i = 0; i < box.extent.rank(); ++i)
    parts.push_back(fmt::format("{}:{}", box.offset[i], box.offset[i] + box.extent[i]));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

namespace {

// Appends the boxes of positions [begin, end) of `box`, with the dimensions before `dim` already fixed to one
// index.
void append_range(const Box& box, int dim, int64_t begin, int64_t end, std::vector<Box>& out) {
  if (begin >= end) return;
  const int rank = box.extent.rank();
  int64_t inner = 1;  // elements of one index of `dim`
  for (int i = dim + 1; i < rank; ++i) inner *= box.extent[i];
  const int64_t first = begin / inner, last = end / inner;  // whole indices are [ceil(begin / inner), last)
  auto part = [&](int64_t index, int64_t count) {
    Box b = box;
    b.offset[dim] += index;
    b.extent[dim] = count;
    return b;
  };
  if (begin % inner && first == last) {  // within one index
    append_range(part(first, 1), dim + 1, begin % inner, end % inner, out);
    return;
  }
  int64_t full = first;
  if (begin % inner) {
    append_range(part(first, 1), dim + 1, begin % inner, inner, out);
    ++full;
  }
  if (last > full) out.push_back(part(full, last - full));
  if (end % inner) append_range(part(last, 1), dim + 1, 0, end % inner, out);
}

}  // namespace

std::vector<Box> boxes_of_range(const Box& box, int64_t begin, int64_t end) {
  check(0 <= begin && begin <= end && end <= box.numel(), "range {}..{} of box {}", begin, end,
        to_string(box));
  std::vector<Box> out;
  if (box.extent.rank() == 0) {
    if (end > begin) out.push_back(box);
    return out;
  }
  append_range(box, 0, begin, end, out);
  return out;
}

Shape index_of(const Box& box, int64_t position) {
  Shape index = box.offset;
  for (int i = box.extent.rank() - 1; i >= 0; --i) {
    index[i] += position % box.extent[i];
    position /= box.extent[i];
  }
  return index;
}

int64_t index_within(const Box& outer, const Box& inner) {
  int64_t index = 0;
  for (int i = 0; i < outer.extent.rank(); ++i)
    index = index * outer.extent[i] + inner.offset[i] - outer.offset[i];
  return index;
}

int64_t copy_box(const Box& source_box, const float* source, const Box& target_box, float* target) {
  const Box common = intersect(source_box, target_box);
  if (empty(common)) return 0;
  const int rank = common.extent.rank();
  const int64_t run = rank ? common.extent[rank - 1] : 1;
  // Walk the common part run by run: its last dimension is contiguous in both.
  Box at = common;
  if (rank) at.extent[rank - 1] = run;
  const int64_t runs = common.numel() / run;
  for (int64_t r = 0; r < runs; ++r) {
    int64_t rest = r;
    for (int i = rank - 2; i >= 0; --i) {
      at.offset[i] = common.offset[i] + rest % common.extent[i];
      rest /= common.extent[i];
    }
    std::memcpy(target + index_within(target_box, at), source + index_within(source_box, at),
                static_cast<size_t>(run) * sizeof(float));
  }
  return common.numel();
}

}  // namespace triax
