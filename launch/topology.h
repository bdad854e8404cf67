#pragma once

namespace triax {

/// The processors of a host that this process may use.
struct NodeTopology {
  int cores = 1;    ///< physical ones
  int domains = 1;  ///< memory domains (NUMA nodes) that have cores
  int threads_per_core = 1;
};

/// Asks hwloc. A process that is bound or in a cgroup sees what is left to it.
NodeTopology read_topology();

/// How the ranks of a host share its cores.
struct Binding {
  int cores_per_rank = 1;  ///< consecutive cores, and compute threads, of each rank
  bool bound = false;      ///< false: more ranks than cores, which the system then shares out
};

/// The most cores per rank such that no rank's cores lie in two memory domains, unless a rank has whole
/// domains. Ranks take cores in their order, so that neighbours share caches and domains.
Binding choose_binding(const NodeTopology& node, int ranks);

}  // namespace triax
