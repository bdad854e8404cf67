#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/communicator.h"

namespace triax {

/// Elements that reduce_piece() takes at most: its sums stay in the first-level cache.
inline constexpr int64_t reduce_piece_elements = 4096;

/// Where part `index` of `length` elements begins that are cut into `parts`, the first ones longer by one
/// where that does not divide; part `parts` begins at the end.
inline int64_t part_begin(int64_t length, int parts, int index) {
  return length / parts * index + std::min<int64_t>(index, length % parts);
}

/// result[i] = inputs[0][i] op inputs[1][i] op ... in this order, for i in [0, count), count at most
/// reduce_piece_elements: f32 and bf16 in fp32 (bf16 rounded once, to nearest even), f64 in double, integers
/// modulo their width. Elements do not see each other, so their bits do not depend on how a buffer is cut.
/// The maximum of anything with NaN is NaN. The result may be one of the inputs: it is written after all of
/// them have been read.
void reduce_piece(DType dtype, ReduceOp op, const void* const* inputs, int n, int64_t count, void* result);

/// The same for any count, piece by piece.
void reduce_buffers(DType dtype, ReduceOp op, const char* const* inputs, int n, int64_t count, char* result);

}  // namespace triax
