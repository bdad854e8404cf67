#pragma once

#include <string>
#include <vector>

#include "core/shape.h"

namespace triax {

/// An axis-aligned part of a logical tensor: elements offset[i] .. offset[i] + extent[i] - 1 of each
/// dimension.
struct Box {
  Shape offset, extent;

  int64_t numel() const { return extent.numel(); }
  bool operator==(const Box&) const = default;
};

/// The box of a whole tensor.
Box whole(const Shape& global);
/// The common part; extents are 0 where there is none.
Box intersect(const Box& a, const Box& b);
bool empty(const Box& box);
/// "[0:4, 8:16]".
std::string to_string(const Box& box);

/// Row-major positions [begin, end) of a box as the fewest boxes that are contiguous in it, in order (a range
/// of a matrix is at most a partial row, whole rows and a partial row). Used where a ZeRO slice cuts a tensor
/// mid-row.
std::vector<Box> boxes_of_range(const Box& box, int64_t begin, int64_t end);

/// Row-major index, within `outer`, of the first element of `inner` (which lies inside it).
int64_t index_within(const Box& outer, const Box& inner);

/// The index, in the whole tensor, of the element at a row-major position of a box.
Shape index_of(const Box& box, int64_t position);

/// Copies the common part of two boxes of one logical tensor from one contiguous row-major buffer to another.
/// Returns the number of elements copied.
int64_t copy_box(const Box& source_box, const float* source, const Box& target_box, float* target);

}  // namespace triax
