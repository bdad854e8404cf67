#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "data/descriptor.h"

namespace triax {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));  // the mapping outlives it
  if (file.fd < 0) {
    if (errno == ENOENT)
      fail_usage("there is no data file {}; relative paths are relative to the working directory", path_);
    fail_usage("can't open the data file {}: {}", path_, std::strerror(errno));
  }
  struct stat status {};
  if (fstat(file.fd, &status) != 0)
    fail_usage("can't examine the data file {}: {}", path_, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail_usage("{} is a directory; a data source is one file", path_);
  if (!S_ISREG(status.st_mode))
    fail_usage("{} is not a plain file, and only those can be read anywhere", path_);
  if (status.st_size == 0) fail_usage("the data file {} is empty", path_);
  size_ = static_cast<size_t>(status.st_size);
  void* block = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (block == MAP_FAILED)
    fail("can't map the {} bytes of the data file {}: {}", size_, path_, std::strerror(errno));
  data_ = static_cast<const uint8_t*>(block);
}

MappedFile::~MappedFile() {
  munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace triax
