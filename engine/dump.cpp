#include "engine/dump.h"

#include <hdf5.h>

#include <filesystem>
#include <functional>

#include "checkpoint/agree.h"
#include "checkpoint/hdf5.h"
#include "model/gpt.h"

namespace triax {

namespace {

// One rank after the other does `body`, so that all may write one file.
void in_turn(Communicator& world, const std::function<void()>& body) {
  for (int turn = 0; turn < world.size(); ++turn)
    collectively(world, [&] {
      if (turn == world.rank()) body();
    });
}

void create_dataset(hid_t file, const std::string& path, hid_t type, const Shape& shape) {
  const Hid space = make_space(shape);
  const Hid links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, path);
  H5Pset_create_intermediate_group(links, 1);
  const Hid data(H5Dcreate2(file, path.c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT), H5Dclose,
                 path);
}

void write_box(hid_t file, const std::string& path, hid_t type, const Box& box, const void* data) {
  if (empty(box)) return;
  const Hid set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, path);
  const Hid space(H5Dget_space(set), H5Sclose, path);
  std::vector<hsize_t> offset(box.offset.begin(), box.offset.end()),
      extent(box.extent.begin(), box.extent.end());
  H5Sselect_hyperslab(space, H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr);
  const Hid memory = make_space(box.extent);
  check_hdf5(H5Dwrite(set, type, memory, space, H5P_DEFAULT, data), "writing " + path + to_string(box));
}

// Rank 0 makes the file with `create`, then all fill it in turn with `fill`.
void write_together(const std::string& path, Communicator& world, const std::function<void(hid_t)>& create,
                    const std::function<void(hid_t)>& fill) {
  collectively(world, [&] {
    if (world.rank()) return;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const Hdf5Session session;
    const Hid file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, path);
    create(file);
  });
  in_turn(world, [&] {
    const Hdf5Session session;
    const Hid file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, path);
    fill(file);
  });
}

}  // namespace

void dump_gradients(const std::string& path, Communicator& world, Trainer& trainer,
                    const ModelConfig& model) {
  write_together(
      path, world,
      [&](hid_t file) {
        for (const ParamSpec& spec : logical_parameters(model))
          create_dataset(file, "/gradients/" + spec.name, H5T_NATIVE_FLOAT, spec.global);
      },
      [&](hid_t file) {
        for (const StatePiece& piece : gradient_pieces(trainer))
          write_box(file, "/gradients/" + piece.name, H5T_NATIVE_FLOAT, piece.box, piece.data);
      });
}

void dump_batch(const std::string& path, Communicator& world, const int32_t* rows, int64_t first,
                int64_t count, int64_t global_batch, int64_t sequence_length) {
  write_together(
      path, world,
      [&](hid_t file) {
        create_dataset(file, "/tokens", H5T_NATIVE_INT32, {global_batch, sequence_length + 1});
      },
      [&](hid_t file) {
        write_box(file, "/tokens", H5T_NATIVE_INT32, {{first, 0}, {count, sequence_length + 1}}, rows);
      });
}

}  // namespace triax
