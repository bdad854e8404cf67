#include "checkpoint/hdf5.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "checkpoint/file_io.h"
#include "core/error.h"

namespace triax {
namespace {

// The lock of a library that has one global state; it guards nothing of ours.
std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string innermost_reason() {
  std::string reason = "HDF5 gives no reason";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
        if (n == 0 && error->desc) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &reason);
  return reason;
}

// HDF5 insists on a real path while it opens a file; the name is gone right after.
std::string make_memory_file(int* fd) {
  std::error_code none;
  std::string path = std::filesystem::is_directory("/dev/shm", none) ? "/dev/shm" : "/tmp";
  path += "/triax-layout-XXXXXX";
  *fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (*fd < 0) fail("can't create {}: {}", path, errno_text(errno));
  return path;
}

Hid create_image(const std::string& path) {
  Hid access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "making file access properties");
  check_hdf5(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST), "choosing the file format");
  // Large data start on pages; metadata lie together in large blocks instead of among the data.
  check_hdf5(H5Pset_alignment(access, 65536, 4096), "setting the alignment");
  check_hdf5(H5Pset_meta_block_size(access, 16384), "setting the metadata block size");
  return Hid(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "laying out a file");
}

// Opens a file for HDF5 and takes its name away, whatever happens.
Hid open_unnamed(int* fd) {
  const std::string path = make_memory_file(fd);
  try {
    Hid file = create_image(path);
    ::unlink(path.c_str());
    return file;
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

}  // namespace

Hdf5Session::Hdf5Session() : lock_(hdf5_mutex()) {
  // What the library would do when the process ends crashes where a file could not be closed on a failing
  // disk; all that is ours has been closed by then, and a failed job must end with its own status.
  static const herr_t without_exit_handler = H5dont_atexit();
  static_cast<void>(without_exit_handler);
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Session::~Hdf5Session() {
  H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
}

Hid::Hid(hid_t id, Close close, std::string_view doing) : id_(id), close_(close) {
  if (id < 0) fail("HDF5: {} failed: {}", doing, innermost_reason());
}

Hid::~Hid() {
  if (id_ >= 0) close_(id_);
}

void Hid::close(std::string_view doing) {
  check_hdf5(close_(std::exchange(id_, -1)), doing);
}

void check_hdf5(herr_t status, std::string_view doing) {
  if (status < 0) fail("HDF5: {} failed: {}", doing, innermost_reason());
}

void write_attribute(hid_t object, const char* name, std::string_view value) {
  Hid type(H5Tcopy(H5T_C_S1), H5Tclose, name);
  check_hdf5(H5Tset_size(type, value.empty() ? 1 : value.size()), name);
  check_hdf5(H5Tset_strpad(type, H5T_STR_NULLPAD), name);
  check_hdf5(H5Tset_cset(type, H5T_CSET_UTF8), name);
  Hid space(H5Screate(H5S_SCALAR), H5Sclose, name);
  Hid attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name);
  check_hdf5(H5Awrite(attribute, type, value.empty() ? "" : value.data()), name);
}

void write_attribute(hid_t object, const char* name, int64_t value) {
  Hid space(H5Screate(H5S_SCALAR), H5Sclose, name);
  Hid attribute(H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name);
  check_hdf5(H5Awrite(attribute, H5T_NATIVE_INT64, &value), name);
}

void write_attribute(hid_t object, const char* name, const Shape& value) {
  Hid space = make_space(Shape{value.rank()});
  Hid attribute(H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name);
  check_hdf5(H5Awrite(attribute, H5T_NATIVE_INT64, value.begin()), name);
}

Hid make_space(const Shape& shape) {
  std::array<hsize_t, Shape::max_rank> extents{};
  for (int i = 0; i < shape.rank(); ++i) extents[static_cast<size_t>(i)] = static_cast<hsize_t>(shape[i]);
  return Hid(H5Screate_simple(shape.rank(), extents.data(), nullptr), H5Sclose, "making a dataspace");
}

Hdf5Image::Hdf5Image() : file_(open_unnamed(&memory_.number)) {}

Hdf5Image::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

void Hdf5Image::close() {
  file_.close("closing a file");
  struct stat status {};
  if (::fstat(memory_.number, &status) != 0) fail("can't size a laid-out file: {}", errno_text(errno));
  size_ = status.st_size;
}

void Hdf5Image::read(int64_t offset, void* out, size_t bytes) const {
  auto* p = static_cast<unsigned char*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(memory_.number, p, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail("reading a laid-out file failed at byte {}: {}", offset, n < 0 ? errno_text(errno) : "it ends");
    p += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
}

}  // namespace triax
