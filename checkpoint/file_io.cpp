#include "checkpoint/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "checkpoint/crc32c.h"
#include "core/error.h"

namespace triax {
namespace {

constexpr size_t buffer_bytes = size_t{1} << 16;

int open_retrying(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

FileWriter::FileWriter(std::filesystem::path path) : path_(std::move(path)), buffer_(buffer_bytes) {
  fd_ = open_retrying(path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd_ < 0) fail("can't create {}: {}", path_.string(), errno_text(errno));
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::append(const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc_ = crc32c(crc_, p, bytes);
  size_ += static_cast<int64_t>(bytes);
  if (bytes > buffer_.size() - buffered_) flush();
  if (bytes > buffer_.size()) {
    write_out(p, bytes);
  } else if (bytes > 0) {
    std::memcpy(buffer_.data() + buffered_, p, bytes);
    buffered_ += bytes;
  }
}

void FileWriter::flush() {
  write_out(buffer_.data(), buffered_);
  buffered_ = 0;
}

void FileWriter::write_out(const unsigned char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("writing {} failed at byte {}: {}", path_.string(), written_, errno_text(errno));
    data += n;
    bytes -= static_cast<size_t>(n);
    written_ += n;
  }
}

void FileWriter::finish() {
  flush();
  if (::fsync(fd_) != 0) fail("fsync of {} failed: {}", path_.string(), errno_text(errno));
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) fail("closing {} failed: {}", path_.string(), errno_text(errno));
}

FileReader::FileReader(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open_retrying(path_, O_RDONLY);
  if (fd_ < 0) fail("can't open {}: {}", path_.string(), errno_text(errno));
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int error = errno;
    ::close(fd_);
    fd_ = -1;
    fail("{} can't be read: {}", path_.string(),
         S_ISREG(status.st_mode) ? errno_text(error) : "it is no regular file");
  }
  size_ = status.st_size;
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

void FileReader::read(int64_t offset, void* out, size_t bytes) const {
  auto* p = static_cast<unsigned char*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, p, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("reading {} failed at byte {}: {}", path_.string(), offset, errno_text(errno));
    if (n == 0) fail("{} ends at byte {}, {} bytes too early", path_.string(), offset, bytes);
    p += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
}

void FileReader::fetch(int64_t offset, int64_t bytes) const {
  if (offset < size_) ::posix_fadvise(fd_, offset, bytes, POSIX_FADV_WILLNEED);
}

std::string read_file(const std::filesystem::path& path) {
  FileReader file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

void replace_file(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path temporary = path;
  temporary.replace_filename(fmt::format(".tmp-{}-{}", path.filename().string(), ::getpid()));
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  FileWriter file(temporary);
  file.append(content.data(), content.size());
  file.finish();
  rename_path(temporary, path);
  sync_folder(path.parent_path());
}

void sync_folder(const std::filesystem::path& folder) {
  const std::filesystem::path name = folder.empty() ? "." : folder;
  const int fd = open_retrying(name, O_RDONLY | O_DIRECTORY);
  if (fd < 0) fail("can't open folder {}: {}", name.string(), errno_text(errno));
  const int status = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network filesystems can't fsync a folder and make its names durable by themselves.
  if (status != 0 && error != EINVAL && error != ENOTSUP)
    fail("fsync of folder {} failed: {}", name.string(), errno_text(error));
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail("can't rename {} to {}: {}", from.string(), to.string(), errno_text(errno));
}

}  // namespace triax
