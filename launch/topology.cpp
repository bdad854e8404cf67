#include "launch/topology.h"

#include <hwloc.h>

#include <algorithm>

namespace triax {

NodeTopology read_topology() {
  NodeTopology node;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return node;
  if (hwloc_topology_load(topology) == 0) {
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
              threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    // Some virtual machines tell of no cores.
    node.cores = std::max(1, cores > 0 ? cores : threads);
    node.threads_per_core = std::max(1, threads / node.cores);
    int domains = 0;
    for (hwloc_obj_t n = nullptr; (n = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, n));)
      domains += n->cpuset && !hwloc_bitmap_iszero(n->cpuset);
    node.domains = std::max(1, domains);
  }
  hwloc_topology_destroy(topology);
  return node;
}

Binding choose_binding(const NodeTopology& node, int ranks) {
  if (ranks > node.cores) return {1, false};
  const int most = node.cores / std::max(1, ranks);
  const int domain = node.cores % node.domains == 0 ? node.cores / node.domains : node.cores;
  for (int cores = most; cores > 1; --cores)
    if (domain % cores == 0 || cores % domain == 0) return {cores, true};
  return {1, true};
}

}  // namespace triax
