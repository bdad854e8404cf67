#include "comm/mpi/requests.h"

#include <algorithm>

#include "core/error.h"

namespace triax {
namespace {

constexpr size_t part_bytes = size_t{1} << 30;

}  // namespace

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(status, &error_class);
  fail("{} failed: {}{}", call, text,
       error_class == MPI_ERR_TRUNCATE
           ? ". The ranks differ in the size of this message; debug.check_collectives: true names the calls"
           : "");
}

void Requests::send(MPI_Comm comm, const void* buffer, size_t bytes, int to, int tag) {
  const char* p = static_cast<const char*>(buffer);
  do {
    const size_t part = std::min(bytes, part_bytes);
    MPI_Request request;
    check_mpi(MPI_Isend(p, static_cast<int>(part), MPI_BYTE, to, tag, comm, &request), "MPI_Isend");
    requests_.push_back(request);
    messages_.push_back({to, -1});
    p += part;
    bytes -= part;
  } while (bytes);
}

void Requests::recv(MPI_Comm comm, void* buffer, size_t bytes, int from, int tag) {
  char* p = static_cast<char*>(buffer);
  do {
    const size_t part = std::min(bytes, part_bytes);
    MPI_Request request;
    check_mpi(MPI_Irecv(p, static_cast<int>(part), MPI_BYTE, from, tag, comm, &request), "MPI_Irecv");
    requests_.push_back(request);
    messages_.push_back({from, static_cast<int>(part)});
    p += part;
    bytes -= part;
  } while (bytes);
}

bool Requests::test() {
  if (requests_.empty()) return true;
  const int n = static_cast<int>(requests_.size());
  statuses_.resize(requests_.size());
  int done = 0;
  const int result = MPI_Testall(n, requests_.data(), &done, statuses_.data());
  if (result == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses_)
      if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING)
        check_mpi(status.MPI_ERROR, "a message");
  }
  check_mpi(result, "MPI_Testall");
  if (!done) return false;
  for (int i = 0; i < n; ++i) {
    if (messages_[i].received < 0) continue;
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes), "MPI_Get_count");
    check(bytes == messages_[i].received,
          "a message of rank {} has {} bytes where {} were expected: the two ranks differ in dtype or size",
          messages_[i].peer, bytes, messages_[i].received);
  }
  requests_.clear();
  messages_.clear();
  return true;
}

std::vector<int> Requests::peers() {
  std::vector<int> ranks;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (requests_[i] != MPI_REQUEST_NULL &&
        MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
      ranks.push_back(messages_[i].peer);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace triax
