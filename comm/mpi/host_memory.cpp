#include "comm/mpi/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "comm/mpi/requests.h"

namespace triax {
namespace {

/// Which file of which process the memory is, and how to tell it from another that has the same numbers.
struct Where {
  int64_t pid, descriptor, device, inode;
};

// Made by rank 0. Not by shm_open(): a file of /dev/shm stays when its processes are killed, and containers
// give that folder 64 MiB.
int create(size_t bytes, Where& where) {
  where = {};
  const int file = memfd_create("triax", MFD_CLOEXEC);
  struct stat status;
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0 || fstat(file, &status) != 0) return file;
  where = {getpid(), file, static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino)};
  return file;
}

// The others' way to it.
int open_of(const Where& where) {
  if (where.pid == 0) return -1;
  const std::string path = "/proc/" + std::to_string(where.pid) + "/fd/" + std::to_string(where.descriptor);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status;
  if (file >= 0 && (fstat(file, &status) != 0 || static_cast<int64_t>(status.st_dev) != where.device ||
                    static_cast<int64_t>(status.st_ino) != where.inode)) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace

std::unique_ptr<HostMemory> HostMemory::make(MPI_Comm comm, size_t bytes) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  Where where{};
  int file = rank == 0 ? create(bytes, where) : -1;
  check_mpi(MPI_Bcast(&where, sizeof where, MPI_BYTE, 0, comm), "MPI_Bcast");
  if (rank != 0) file = open_of(where);
  void* data = file < 0 || where.pid == 0 ? MAP_FAILED
                                          : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  std::unique_ptr<HostMemory> memory;
  if (data != MAP_FAILED) memory.reset(new HostMemory(static_cast<char*>(data), bytes));
  int here = memory ? 1 : 0, everywhere = 0;
  check_mpi(MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  if (file >= 0) close(file);  // of rank 0 only now: the others open it there
  return everywhere ? std::move(memory) : nullptr;
}

HostMemory::~HostMemory() {
  munmap(data_, bytes_);
}

}  // namespace triax
