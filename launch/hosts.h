#pragma once

#include <string>
#include <vector>

#include "launch/topology.h"

namespace triax {

/// A host that may run ranks.
struct Host {
  std::string name;
  int slots = 0;  ///< ranks that it takes; 0: not told
  bool operator==(const Host&) const = default;
};

/// "a:8,b:8" or "a,b"; a host named twice adds up. Throws Error(usage) for what is no such list.
std::vector<Host> parse_hosts(const std::string& list);

/// The text of a hostfile: a line per host, "name", "name slots=8" (Open MPI's) or "name:8" (MPICH's), `#`
/// begins a comment. A host named twice adds up. Throws Error(usage) with the line that is wrong; `source`
/// is the file's name.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& source);
std::vector<Host> read_hostfile(const std::string& path);

/// Slurm's "gpu[01-03,7],login" as names: gpu01, gpu02, gpu03, gpu7, login.
std::vector<std::string> expand_hostlist(const std::string& list);
/// Slurm's "8(x2),4" as numbers: 8, 8, 4.
std::vector<int> expand_counts(const std::string& list);

/// The hosts of the Slurm allocation that this process is in, with slots from SLURM_TASKS_PER_NODE, else from
/// SLURM_JOB_CPUS_PER_NODE. Empty outside of one.
std::vector<Host> slurm_allocation();

/// What of a host is this process's in its Slurm allocation (SLURM_JOB_CPUS_PER_NODE, the smallest of its
/// nodes'); all of it outside of one. Slurm hands out processors, which hwloc sees as cores of this process
/// only where control groups confine it.
NodeTopology within_allocation(const NodeTopology& node);

/// True when the name is this machine's: localhost, its host name, or an address of one of its interfaces.
bool is_this_host(const std::string& name);

/// "h1:4, h2:4".
std::string to_string(const std::vector<Host>& hosts);

}  // namespace triax
