#include "parallel/grid.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace triax {

Grid::Grid(std::vector<GridAxis> axes) : axes_(std::move(axes)), size_(1) {
  for (const GridAxis& axis : axes_) {
    check(axis.size >= 1, "grid: axis {} has size {}; it must be at least 1", axis.name, axis.size);
    size_ *= axis.size;
  }
}

int Grid::size(std::string_view axis) const {
  for (const GridAxis& a : axes_)
    if (a.name == axis) return a.size;
  return 1;
}

int Grid::coordinate(int rank, std::string_view axis) const {
  check(0 <= rank && rank < size_, "grid: rank {} of {}", rank, size_);
  for (const GridAxis& a : axes_) {
    if (a.name == axis) return rank % a.size;
    rank /= a.size;
  }
  return 0;
}

int Grid::with(int rank, std::string_view axis, int coordinate) const {
  int stride = 1;
  for (const GridAxis& a : axes_) {
    if (a.name == axis) {
      check(0 <= coordinate && coordinate < a.size, "grid: coordinate {} on axis {} of size {}", coordinate,
            axis, a.size);
      return rank + (coordinate - rank / stride % a.size) * stride;
    }
    stride *= a.size;
  }
  return rank;
}

int Grid::neighbour(int rank, std::string_view axis, int by) const {
  const int n = size(axis);
  return with(rank, axis, ((coordinate(rank, axis) + by) % n + n) % n);
}

std::vector<int> Grid::members(int rank, const std::vector<std::string_view>& axes) const {
  std::vector<int> ranks{rank};
  for (std::string_view axis : axes) {
    std::vector<int> wider;
    for (int r : ranks)
      for (int c = 0; c < size(axis); ++c) wider.push_back(with(r, axis, c));
    ranks = std::move(wider);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string to_string(const Grid& grid) {
  std::vector<std::string> parts;
  for (const GridAxis& a : grid.axes()) parts.push_back(fmt::format("{} {}", a.name, a.size));
  return fmt::format("{} ({} {})", fmt::join(parts, " x "), grid.size(), grid.size() == 1 ? "rank" : "ranks");
}

std::string group_table(const Grid& grid) {
  constexpr int shown = 64;
  std::string text = fmt::format("grid {}\n{:>6}", to_string(grid), "rank");
  for (const GridAxis& a : grid.axes()) text += fmt::format(" {:>4}", a.name);
  for (const GridAxis& a : grid.axes()) text += fmt::format("  {:<20}", a.name + " group");
  text += '\n';
  for (int rank = 0; rank < std::min(grid.size(), shown); ++rank) {
    text += fmt::format("{:>6}", rank);
    for (const GridAxis& a : grid.axes()) text += fmt::format(" {:>4}", grid.coordinate(rank, a.name));
    for (const GridAxis& a : grid.axes()) {
      const auto members = grid.members(rank, {a.name});
      const std::string list = members.size() <= 6
                                   ? fmt::format("{}", fmt::join(members, " "))
                                   : fmt::format("{} {} .. {}", members[0], members[1], members.back());
      text += fmt::format("  {:<20}", list);
    }
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  if (grid.size() > shown) text += fmt::format("   ... {} more ranks\n", grid.size() - shown);
  return text;
}

}  // namespace triax
