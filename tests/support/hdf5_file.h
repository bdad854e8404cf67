#pragma once

#include <hdf5.h>

#include <stdexcept>

#include <string>
#include <vector>

namespace triax::test {

/// Reads whole datasets, groups of them and string attributes of an HDF5 file. For tests: fails by throwing.
class Hdf5File {
 public:
  explicit Hdf5File(const std::string& path) : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
    if (file_ < 0) throw std::runtime_error("can't open " + path);
  }
  ~Hdf5File() { H5Fclose(file_); }
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  std::vector<float> floats(const std::string& name) const { return read<float>(name, H5T_NATIVE_FLOAT); }
  std::vector<double> doubles(const std::string& name) const { return read<double>(name, H5T_NATIVE_DOUBLE); }
  std::vector<int32_t> ints(const std::string& name) const { return read<int32_t>(name, H5T_NATIVE_INT32); }

  std::vector<std::string> members(const std::string& group) const {
    std::vector<std::string> names;
    H5Literate_by_name(
        file_, group.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
        [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
          static_cast<std::vector<std::string>*>(out)->push_back(name);
          return 0;
        },
        &names, H5P_DEFAULT);
    return names;
  }

  std::string text_attribute(const char* name) const {
    const hid_t attribute = H5Aopen(file_, name, H5P_DEFAULT);
    if (attribute < 0) throw std::runtime_error(std::string("no attribute ") + name);
    const hid_t type = H5Aget_type(attribute);
    std::string text;
    if (H5Tis_variable_str(type) > 0) {
      char* value = nullptr;
      H5Aread(attribute, type, &value);
      text = value;
      H5free_memory(value);
    } else {
      text.resize(H5Tget_size(type));
      H5Aread(attribute, type, text.data());
      text.erase(text.find_last_not_of('\0') + 1);
    }
    H5Tclose(type);
    H5Aclose(attribute);
    return text;
  }

 private:
  template <class T>
  std::vector<T> read(const std::string& name, hid_t type) const {
    const hid_t set = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    if (set < 0) throw std::runtime_error("no dataset " + name);
    const hid_t space = H5Dget_space(set);
    std::vector<T> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
    H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Sclose(space);
    H5Dclose(set);
    return values;
  }
  hid_t file_;
};

}  // namespace triax::test
