#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace triax {

/// Throws what MPI says about a failed call.
void check_mpi(int status, const char* call);

/// Messages under way. Buffers must live until test() has returned true.
class Requests {
 public:
  /// Starts a message; one of more than 1 GiB goes in parts, which MPI keeps in order. An empty one is sent
  /// as well: it is a signal.
  void send(MPI_Comm comm, const void* buffer, size_t bytes, int to, int tag);
  void recv(MPI_Comm comm, void* buffer, size_t bytes, int from, int tag);
  /// True when all messages are done; the set is then empty. A message of another size than expected is a
  /// fault.
  bool test();
  /// The ranks of which a message is awaited, or that have not taken theirs, without repetition.
  std::vector<int> peers();

 private:
  struct Message {
    int peer;
    int received;  // bytes to be received, -1 for a send
  };
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace triax
