#pragma once

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/shape.h"

namespace triax {

/// HDF5 is not thread-safe, and ranks may be threads of one process: whoever calls HDF5 holds a session, one
/// at a time in a process. While it lives, HDF5's own error printing is off, and errors become ours.
class Hdf5Session {
 public:
  Hdf5Session();
  ~Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

/// Owns one HDF5 identifier. Made from the result of a call; a failed call throws an Error with `doing` and
/// the innermost reason HDF5 gives.
class Hid {
 public:
  using Close = herr_t (*)(hid_t);
  Hid(hid_t id, Close close, std::string_view doing);
  ~Hid();
  Hid(Hid&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hid& operator=(Hid&&) = delete;
  operator hid_t() const { return id_; }  // NOLINT: it stands for the identifier in calls
  /// Closes now, so that a failure (of writing what was cached) is seen.
  void close(std::string_view doing);

 private:
  hid_t id_;
  Close close_;
};

/// Throws an Error unless an HDF5 call succeeded.
void check_hdf5(herr_t status, std::string_view doing);

/// Attributes of a file, group or dataset: a fixed-length string, a 64-bit integer, a list of them.
void write_attribute(hid_t object, const char* name, std::string_view value);
void write_attribute(hid_t object, const char* name, int64_t value);
void write_attribute(hid_t object, const char* name, const Shape& value);

/// A simple dataspace of that shape.
Hid make_space(const Shape& shape);

/// An HDF5 file that is only laid out: a nameless sparse file in memory (/dev/shm), whose reserved room is
/// never written and costs nothing. Its metadata are copied into the real file, so that every byte of that
/// one is written, and checksummed, by us. HDF5 itself never writes to a disk: after a write that failed (a
/// full disk) it would keep the file open for ever and fall over it when the program ends.
class Hdf5Image {
 public:
  /// Creates it with the latest format, whose metadata carry checksums.
  Hdf5Image();
  Hdf5Image(const Hdf5Image&) = delete;
  Hdf5Image& operator=(const Hdf5Image&) = delete;

  hid_t file() const { return file_; }
  /// Closes the HDF5 file; from then on read() and size() may be called, without a session too.
  void close();
  int64_t size() const { return size_; }
  void read(int64_t offset, void* out, size_t bytes) const;

 private:
  struct Descriptor {
    Descriptor() = default;
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int number = -1;
  };
  Descriptor memory_;
  Hid file_;
  int64_t size_ = 0;
};

}  // namespace triax
