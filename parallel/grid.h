#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace triax {

/// One axis of the grid: "tp", "dp", "pp" today; "cp" and "ep" need no new concept.
struct GridAxis {
  std::string name;
  int size = 1;
};

/// The ranks of a job as a box of named axes: a pure value. The first axis is the innermost, so that its
/// ranks are adjacent and share a node.
///
///     Grid grid({{"tp", 2}, {"dp", 2}, {"pp", 2}});
///     grid.coordinate(5, "tp") == 1;              // 5 = 1 + 2 * (0 + 2 * 1)
///     grid.members(5, {"tp"}) == {4, 5};          // ranks that differ from 5 in tp alone
///     grid.members(5, {"tp", "dp"}) == {4, 5, 6, 7};
///     grid.neighbour(5, "pp", -1) == 1;
class Grid {
 public:
  explicit Grid(std::vector<GridAxis> axes);

  int size() const { return size_; }
  const std::vector<GridAxis>& axes() const { return axes_; }
  /// Size of an axis; 1 for an axis that the grid does not have.
  int size(std::string_view axis) const;
  /// Coordinate of a rank on an axis; 0 for an axis that the grid does not have.
  int coordinate(int rank, std::string_view axis) const;
  /// The rank whose coordinate on `axis` is `coordinate`, the others as those of `rank`.
  int with(int rank, std::string_view axis, int coordinate) const;
  /// The rank `by` steps along the axis, wrapping around.
  int neighbour(int rank, std::string_view axis, int by) const;
  /// All ranks that agree with `rank` on every axis but those named, ascending.
  std::vector<int> members(int rank, const std::vector<std::string_view>& axes) const;

 private:
  std::vector<GridAxis> axes_;
  int size_;
};

/// "tp 2 x dp 2 x pp 2 (8 ranks)".
std::string to_string(const Grid& grid);
/// One line per rank: its coordinates and the groups it belongs to; above 64 ranks the first ones and a
/// count.
std::string group_table(const Grid& grid);

}  // namespace triax
