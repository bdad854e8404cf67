#include "parallel/param_spec.h"

#include <algorithm>

namespace triax {

LocalParam localise(const ParamSpec& spec, const Grid& grid, int rank) {
  LocalParam local{spec, whole(spec.global), spec.global, 0, 1};
  bool cut_over_tensor = false;
  for (const Shard& shard : spec.shards) {
    const int ranks = grid.size(shard.axis);
    const int parts = shard.parts ? shard.parts : ranks;
    check(ranks % parts == 0, "{}: axis {} of {} ranks can't hold copies of {} parts", spec.name, shard.axis,
          ranks, parts);
    const int coordinate = grid.coordinate(rank, shard.axis);
    const int64_t extent = spec.global[shard.dim];
    const int64_t block = (extent + parts - 1) / parts;
    const int64_t begin = std::min(extent, block * (coordinate / (ranks / parts)));
    check(shard.dim == 0 || extent % parts == 0, "{}: dimension {} of {} is not divisible by {} parts",
          spec.name, shard.dim, extent, parts);
    local.box.offset[shard.dim] = begin;
    local.box.extent[shard.dim] = std::min(block, extent - begin);
    local.memory[shard.dim] = block;
    if (shard.axis == "tp") {
      cut_over_tensor = true;
      local.copy = coordinate % (ranks / parts);
      local.copies = ranks / parts;
    }
  }
  if (!cut_over_tensor) {
    local.copy = grid.coordinate(rank, "tp");
    local.copies = grid.size("tp");
  }
  return local;
}

}  // namespace triax
