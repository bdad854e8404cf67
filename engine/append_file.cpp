#include "engine/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace triax {

AppendFile::AppendFile(std::string path, Report report)
    : path_(std::move(path)),
      report_(std::move(report)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  check(file_ >= 0, "can't open {}: {}", path_, std::strerror(errno));
}

AppendFile::~AppendFile() {
  if (!kept_.empty()) write_kept();
  close(file_);
}

// Leaves the reason in errno when it fails.
bool AppendFile::write_kept() {
  if (torn_at_ && ftruncate(file_, *torn_at_) != 0) return false;
  torn_at_.reset();
  const off_t whole = lseek(file_, 0, SEEK_END);
  if (whole < 0) return false;
  size_t done = 0;
  while (done < kept_.size()) {
    const ssize_t n = ::write(file_, kept_.data() + done, kept_.size() - done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      const int reason = n == 0 ? ENOSPC : errno;
      if (done > 0 && ftruncate(file_, whole) != 0) torn_at_ = whole;
      errno = reason;
      return false;
    }
  }
  kept_.clear();
  return true;
}

void AppendFile::append(std::string_view record) {
  kept_ += record;
  const bool written = write_kept();
  const int reason = errno;
  if (!written && !failing_)
    report_(fmt::format("can't write {}: {}; what belongs there is kept in memory and written later", path_,
                        std::strerror(reason)));
  failing_ = !written;
}

void AppendFile::finish() {
  if (kept_.empty()) return;
  const bool written = write_kept();
  const int reason = errno;
  failing_ = !written;
  check(written, "can't write {}: {}; its last {} bytes are lost", path_, std::strerror(reason),
        kept_.size());
}

}  // namespace triax
