#include "data/token_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "core/error.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

constexpr int64_t header_bytes = 1024;         // of llm.c
constexpr int64_t longest_sequence = 1 << 30;  // the index keeps lengths as int32: longer documents are cut
constexpr size_t buffer_bytes = size_t{1} << 20;

int width_of(TokenFormat format, int64_t vocabulary) {
  return vocabulary < (format == TokenFormat::megatron ? 65500 : 65537) ? 2 : 4;
}

void write_all(int fd, const std::string& path, const char* data, size_t bytes, int64_t at = -1) {
  while (bytes > 0) {
    const ssize_t n = at < 0 ? write(fd, data, bytes) : pwrite(fd, data, bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("can't write {}: {}", path, std::strerror(errno));
    data += n;
    bytes -= static_cast<size_t>(n);
    if (at >= 0) at += n;
  }
}

void sync_file(int fd, const std::string& path) {
  if (fsync(fd) != 0) fail("can't bring {} to the disk: {}", path, std::strerror(errno));
}

// Names in a folder; some file systems can't, and then there is nothing to be done.
void sync_folder_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

std::string tokens_part(const std::string& prefix) {
  return prefix + ".bin.part";
}
std::string documents_part(const std::string& prefix) {
  return prefix + ".documents.part";
}
std::string index_part(const std::string& prefix) {
  return prefix + ".idx.part";
}

void rename_if_there(const std::string& from, const std::string& to) {
  std::error_code error;
  if (!fs::exists(from, error)) return;
  fs::rename(from, to, error);
  if (error) fail("can't rename {} to {}: {}", from, to, error.message());
}

}  // namespace

TokenWriter::TokenWriter(std::string prefix, TokenFormat format, int64_t vocabulary,
                         const WrittenTokens& from)
    : prefix_(std::move(prefix)),
      format_(format),
      vocabulary_(vocabulary),
      width_(width_of(format, vocabulary)),
      written_(from) {
  const int64_t header = format == TokenFormat::llmc ? header_bytes : 0;
  try {
    open(tokens_, tokens_part(prefix_), from.tokens == 0 ? 0 : header + from.tokens * width_);
    open(documents_, documents_part(prefix_), from.documents * 8);
  } catch (...) {
    if (tokens_.fd >= 0) close(tokens_.fd);
    throw;
  }
  if (from.tokens == 0 && header) put(tokens_, std::array<char, header_bytes>{}.data(), header_bytes);
}

TokenWriter::~TokenWriter() {
  for (const File* file : {&tokens_, &documents_})
    if (file->fd >= 0) close(file->fd);
}

void TokenWriter::open(File& file, const std::string& path, int64_t bytes) {
  file.path = path;
  file.buffer.reserve(buffer_bytes);
  file.fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file.fd < 0) fail_usage("can't write {}: {}", path, std::strerror(errno));
  if (flock(file.fd, LOCK_EX | LOCK_NB) != 0)
    fail_usage("{} is being written by another process; wait for it, or give another --output", path);
  struct stat status {};
  if (fstat(file.fd, &status) != 0) fail("can't examine {}: {}", path, std::strerror(errno));
  if (status.st_size < bytes)
    fail_usage(
        "{} has {} bytes, fewer than the {} that a run before this one wrote; remove it, and the same "
        "command "
        "begins anew",
        path, status.st_size, bytes);
  if (ftruncate(file.fd, bytes) != 0 || lseek(file.fd, bytes, SEEK_SET) < 0)
    fail("can't cut {} to {} bytes: {}", path, bytes, std::strerror(errno));
}

void TokenWriter::put(File& file, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  if (file.buffer.size() + bytes > buffer_bytes) flush(file);
  if (bytes > buffer_bytes)
    write_all(file.fd, file.path, from, bytes);
  else
    file.buffer.insert(file.buffer.end(), from, from + bytes);
}

void TokenWriter::flush(File& file) {
  write_all(file.fd, file.path, file.buffer.data(), file.buffer.size());
  file.buffer.clear();
}

void TokenWriter::append(std::span<const int32_t> tokens) {
  for (const int32_t t : tokens) {
    check(t >= 0 && t < vocabulary_, "token {} is outside of the vocabulary of {}", t, vocabulary_);
    if (width_ == 2) {
      const auto narrow = static_cast<uint16_t>(t);
      put(tokens_, &narrow, sizeof narrow);
    } else {
      put(tokens_, &t, sizeof t);
    }
  }
  const auto count = static_cast<int64_t>(tokens.size());
  written_.tokens += count;
  written_.open_document += count;
  if (format_ == TokenFormat::llmc && written_.tokens > std::numeric_limits<int32_t>::max())
    fail_usage(
        "llm.c's header counts no more than {} tokens; cut the input into parts, or take --format megatron",
        std::numeric_limits<int32_t>::max());
}

void TokenWriter::end_document() {
  if (written_.open_document == 0) return;
  put(documents_, &written_.open_document, sizeof written_.open_document);
  written_.open_document = 0;
  ++written_.documents;
}

WrittenTokens TokenWriter::sync() {
  for (File* file : {&tokens_, &documents_}) {
    flush(*file);
    sync_file(file->fd, file->path);
  }
  return written_;
}

void TokenWriter::finish() {
  sync();
  if (format_ == TokenFormat::llmc)
    write_header();
  else
    write_index();
}

void TokenWriter::write_header() {
  std::array<int32_t, 256> header{};
  header[0] = width_ == 2 ? 20240520 : 20240801;
  header[1] = width_ == 2 ? 1 : 7;
  header[2] = static_cast<int32_t>(written_.tokens);
  write_all(tokens_.fd, tokens_.path, reinterpret_cast<const char*>(header.data()), header_bytes, 0);
  sync_file(tokens_.fd, tokens_.path);
}

// "MMIDIDX\0\0", version u64, type u8 (8: uint16, 4: int32), sequences u64, documents + 1 u64; then of each
// sequence its length i32 and its offset in bytes i64; then i64 the first sequence of each document, and the
// number of all.
void TokenWriter::write_index() {
  // The lengths are read once for each part of the index, so that none has to be held.
  const auto each_document = [&](const std::function<void(int64_t length)>& take) {
    std::vector<int64_t> lengths(buffer_bytes / 8);
    for (int64_t at = 0; at < written_.documents;) {
      const auto some = static_cast<size_t>(
          std::min<int64_t>(written_.documents - at, static_cast<int64_t>(lengths.size())));
      if (pread(documents_.fd, lengths.data(), some * 8, at * 8) != static_cast<ssize_t>(some * 8))
        fail("can't read {}: {}", documents_.path, std::strerror(errno));
      for (size_t i = 0; i < some; ++i) take(lengths[i]);
      at += static_cast<int64_t>(some);
    }
  };
  const auto each_sequence = [&](const std::function<void(int64_t length)>& take) {
    each_document([&](int64_t left) {
      for (; left > longest_sequence; left -= longest_sequence) take(longest_sequence);
      take(left);
    });
  };
  File index;
  open(index, index_part(prefix_), 0);
  try {
    const auto number = [&](auto value) { put(index, &value, sizeof value); };
    uint64_t sequences = 0;
    each_sequence([&](int64_t) { ++sequences; });
    put(index, "MMIDIDX\0\0", 9);
    number(uint64_t{1});
    number(static_cast<uint8_t>(width_ == 2 ? 8 : 4));
    number(sequences);
    number(static_cast<uint64_t>(written_.documents + 1));
    each_sequence([&](int64_t length) { number(static_cast<int32_t>(length)); });
    int64_t offset = 0;
    each_sequence([&](int64_t length) {
      number(offset);
      offset += length * width_;
    });
    int64_t first = 0;
    number(first);
    each_document([&](int64_t length) {
      first += std::max<int64_t>(1, (length + longest_sequence - 1) / longest_sequence);
      number(first);
    });
    flush(index);
    sync_file(index.fd, index.path);
  } catch (...) {
    close(index.fd);
    throw;
  }
  close(index.fd);
}

void TokenWriter::publish(const std::string& prefix, TokenFormat format) {
  std::error_code error;
  const bool index = format == TokenFormat::megatron;
  // Of a pair that is replaced, the old index goes first: a .bin without its .idx is never taken for the
  // pair.
  if (!index || fs::exists(index_part(prefix), error)) fs::remove(prefix + ".idx", error);
  rename_if_there(tokens_part(prefix), prefix + ".bin");
  if (index) rename_if_there(index_part(prefix), prefix + ".idx");
  fs::remove(documents_part(prefix), error);
  sync_folder_of(prefix);
}

std::string TokenWriter::missing_part(const std::string& prefix, TokenFormat format, bool finished) {
  // Publishing renames one after the other: what is in place already is no part any more.
  std::vector<std::pair<std::string, std::string>> parts{{tokens_part(prefix), prefix + ".bin"}};
  if (!finished)
    parts.emplace_back(documents_part(prefix), "");
  else if (format == TokenFormat::megatron)
    parts.emplace_back(index_part(prefix), prefix + ".idx");
  std::error_code error;
  for (const auto& [part, whole] : parts)
    if (!fs::exists(part, error) && !(finished && fs::exists(whole, error))) return part;
  return "";
}

void TokenWriter::discard(const std::string& prefix) {
  std::error_code error;
  for (const std::string& path : {tokens_part(prefix), index_part(prefix), documents_part(prefix)})
    fs::remove(path, error);
}

void replace_text(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail("can't write {}: {}", temporary, std::strerror(errno));
  try {
    write_all(fd, temporary, content.data(), content.size());
    sync_file(fd, temporary);
  } catch (...) {
    close(fd);
    throw;
  }
  close(fd);
  rename_if_there(temporary, path);
  sync_folder_of(path);
}

}  // namespace triax
