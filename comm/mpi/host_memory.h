#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

namespace triax {

/// Memory that several processes of one host map. It has no name in a file system, takes what is touched, and
/// goes with the last of them, however they end.
class HostMemory {
 public:
  /// Collective over `comm`, whose ranks share a host: `bytes` zeros for all of them, or null for all of them
  /// where one can't map them (ranks in containers that do not see each other's processes).
  static std::unique_ptr<HostMemory> make(MPI_Comm comm, size_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }

 private:
  HostMemory(char* data, size_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  size_t bytes_;
};

}  // namespace triax
