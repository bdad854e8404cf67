#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.h"

namespace triax {

/// Extents of a tensor, outermost first; at most four.
class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    check(extents.size() <= max_rank, "a shape has at most {} extents, got {}", int{max_rank},
          extents.size());
    for (int64_t e : extents) extents_[rank_++] = e;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[i]; }
  int64_t& operator[](int i) { return extents_[i]; }
  /// Number of elements; 1 for a scalar (rank 0).
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extents_[i];
    return n;
  }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// "2 x 3 x 4".
std::string to_string(const Shape& shape);

}  // namespace triax
