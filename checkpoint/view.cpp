#include "checkpoint/view.h"

#include <array>
#include <limits>
#include <memory>

#include "checkpoint/file_io.h"
#include "checkpoint/hdf5.h"
#include "checkpoint/shard.h"

namespace triax {
namespace {

using Extents = std::array<hsize_t, Shape::max_rank>;

Extents extents_of(const Shape& shape) {
  Extents out{};
  for (int i = 0; i < shape.rank(); ++i) out[static_cast<size_t>(i)] = static_cast<hsize_t>(shape[i]);
  return out;
}

struct Source {
  const std::string* file;
  const BoxRecord* box;
};

void create_virtual(hid_t file, const TensorRecord& tensor, const std::vector<Source>& sources) {
  const std::string path = tensor.path();
  Hid properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "making dataset properties");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  check_hdf5(H5Pset_fill_value(properties, H5T_NATIVE_FLOAT, &nan), "setting the fill value");
  Hid target = make_space(tensor.shape);
  for (const Source& s : sources) {
    const Extents start = extents_of(s.box->box.offset), count = extents_of(s.box->box.extent);
    check_hdf5(H5Sselect_hyperslab(target, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
               "selecting a box");
    Hid source = make_space(s.box->box.extent);
    check_hdf5(H5Pset_virtual(properties, target, s.file->c_str(),
                              dataset_path(tensor.kind, tensor.name, s.box->box).c_str(), source),
               "mapping a box");
  }
  check_hdf5(H5Sselect_all(target), "selecting a tensor");
  Hid links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "making link properties");
  check_hdf5(H5Pset_create_intermediate_group(links, 1), "making link properties");
  Hid dataset(H5Dcreate2(file, path.c_str(), H5T_IEEE_F32LE, target, links, properties, H5P_DEFAULT),
              H5Dclose, path);
}

void lay_out(Hdf5Image& image, const CheckpointInfo& info, const std::vector<std::vector<Source>>& sources) {
  Hid root(H5Gopen2(image.file(), "/", H5P_DEFAULT), H5Gclose, "opening the root");
  write_attribute(root, "format_version", int64_t{format_version});
  write_attribute(root, "id", std::string_view(info.id));
  write_attribute(root, "step", info.step);
  write_attribute(root, "consumed_samples", info.consumed_samples);
  for (size_t i = 0; i < info.tensors.size(); ++i) create_virtual(image.file(), info.tensors[i], sources[i]);
}

}  // namespace

FileRecord write_view(const std::filesystem::path& folder, const CheckpointInfo& info) {
  std::vector<std::vector<Source>> sources(info.tensors.size());
  for (const FileRecord& f : info.files)
    for (const BoxRecord& b : f.boxes) sources[static_cast<size_t>(b.tensor)].push_back({&f.name, &b});
  std::unique_ptr<Hdf5Image> image;
  try {
    Hdf5Session session;
    image = std::make_unique<Hdf5Image>();
    lay_out(*image, info, sources);
    image->close();
  } catch (const Error& e) {
    fail("laying out {} failed: {}", (folder / view_file).string(), e.what());
  }
  FileWriter writer(folder / view_file);
  std::vector<char> buffer(size_t{1} << 16);
  while (writer.size() < image->size()) {
    const auto n = static_cast<size_t>(
        std::min<int64_t>(image->size() - writer.size(), static_cast<int64_t>(buffer.size())));
    image->read(writer.size(), buffer.data(), n);
    writer.append(buffer.data(), n);
  }
  writer.finish();
  return {view_file, writer.size(), writer.crc(), {}};
}

}  // namespace triax
