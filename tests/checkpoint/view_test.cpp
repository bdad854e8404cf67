// checkpoint.h5 as the HDF5 library and h5py read it.

#include <gtest/gtest.h>
#include <hdf5.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "checkpoint/file_io.h"
#include "checkpoint/hdf5.h"
#include "checkpoint/shard.h"
#include "checkpoint/verify.h"
#include "logical_state.h"
#include "support/python.h"

namespace triax::test {
namespace {

struct Dataset {
  std::vector<hsize_t> shape;
  std::vector<float> values;
};

Dataset read_dataset(const fs::path& file, const std::string& path) {
  Hdf5Session session;
  Hid f(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "opening");
  Hid dataset(H5Dopen2(f, path.c_str(), H5P_DEFAULT), H5Dclose, path);
  Hid space(H5Dget_space(dataset), H5Sclose, path);
  Dataset out;
  out.shape.resize(static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, out.shape.data(), nullptr);
  out.values.resize(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
  check_hdf5(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.values.data()), path);
  return out;
}

int64_t read_number(const fs::path& file, const char* name) {
  Hdf5Session session;
  Hid f(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "opening");
  Hid attribute(H5Aopen(f, name, H5P_DEFAULT), H5Aclose, name);
  int64_t value = 0;
  check_hdf5(H5Aread(attribute, H5T_NATIVE_INT64, &value), name);
  return value;
}

// Number of elements of the view whose bits are not the state's.
int64_t wrong_in_view(const fs::path& folder, uint64_t seed) {
  int64_t wrong = 0;
  for (const LogicalTensor& t : small_model()) {
    const Dataset d = read_dataset(folder / "checkpoint.h5", "/" + logical_path(t.kind, t.name));
    EXPECT_EQ(std::vector<hsize_t>(t.shape.begin(), t.shape.end()), d.shape);
    for (size_t i = 0; i < d.values.size(); ++i)
      wrong += std::bit_cast<uint32_t>(value_at(t, static_cast<int64_t>(i), seed)) !=
               std::bit_cast<uint32_t>(d.values[i]);
  }
  return wrong;
}

TEST(View, ShowsWholeTensorsAndCanBeMoved) {
  TestFolder folder;
  for (int ranks : {1, 3, 8}) {
    const fs::path saved = save_state(folder / "run", ranks, ranks, 4, static_cast<uint64_t>(ranks));
    EXPECT_EQ(wrong_in_view(saved, 4), 0) << ranks;
    EXPECT_EQ(read_number(saved / "checkpoint.h5", "step"), ranks);
    EXPECT_EQ(read_number(saved / "checkpoint.h5", "consumed_samples"), 32 * ranks);
    const fs::path moved = folder / ("elsewhere" + std::to_string(ranks));
    fs::rename(saved, moved);
    EXPECT_EQ(wrong_in_view(moved, 4), 0) << ranks;
    EXPECT_EQ(load_and_compare(moved, 2, 4), 0);
    EXPECT_TRUE(verify_checkpoint(moved).problems.empty());
  }
}

TEST(View, MissingShardReadsAsNaNAndIsRefusedByLoad) {
  TestFolder folder;
  const LogicalTensor t{StateKind::weight, "w", {6, 4}};
  fs::path saved;
  run_local_ranks(3, {}, [&](Communicator& world, int rank) {
    Pieces pieces;
    pieces.add(t, {{2 * rank, 0}, {2, 4}});
    for (int i = 0; i < 8; ++i) pieces.list[0].data[i] = static_cast<float>(10 * rank + i);
    SaveRequest request;
    request.dir = folder.path();
    request.step = 1;
    request.pieces = pieces.list;
    const SaveResult result = save_checkpoint(world, request);
    if (rank == 0) saved = result.folder;
  });
  fs::remove(saved / "shard-00001-of-00003.h5");
  const Dataset d = read_dataset(saved / "checkpoint.h5", "/model/w");
  for (size_t i = 0; i < 24; ++i) {
    const size_t row = i / 8;
    if (row == 1)
      EXPECT_TRUE(std::isnan(d.values[i])) << i;
    else
      EXPECT_EQ(d.values[i], static_cast<float>(10 * row + i % 8)) << i;
  }
  try {
    run_local_ranks(1, {}, [&](Communicator& world, int) {
      Pieces pieces;
      pieces.add(t, whole(t.shape));
      load_checkpoint(world, saved, pieces.list);
    });
    FAIL() << "it was loaded";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("shard-00001-of-00003.h5 is missing"), std::string::npos) << text;
    EXPECT_NE(text.find("model/w [2:4, 0:4]"), std::string::npos) << text;
  }
}

TEST(View, ShardsDescribeThemselves) {
  TestFolder folder;
  const fs::path saved = save_state(folder.path(), 5, 2, 4);
  const CheckpointInfo info = read_manifest(saved);
  for (const FileRecord& file : info.files)
    for (const BoxRecord& b : file.boxes) {
      const TensorRecord& t = info.tensors[static_cast<size_t>(b.tensor)];
      Hdf5Session session;
      Hid f(H5Fopen((saved / file.name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "opening");
      Hid dataset(H5Dopen2(f, dataset_path(t.kind, t.name, b.box).c_str(), H5P_DEFAULT), H5Dclose, "dataset");
      EXPECT_EQ(static_cast<int64_t>(H5Dget_offset(dataset)), b.byte_offset);
      Hid attribute(H5Aopen(dataset, "offset", H5P_DEFAULT), H5Aclose, "offset");
      std::vector<int64_t> offset(static_cast<size_t>(t.shape.rank()));
      check_hdf5(H5Aread(attribute, H5T_NATIVE_INT64, offset.data()), "offset");
      EXPECT_EQ(offset, std::vector<int64_t>(b.box.offset.begin(), b.box.offset.end()));
      Hid shape(H5Aopen(dataset, "global_shape", H5P_DEFAULT), H5Aclose, "global_shape");
      check_hdf5(H5Aread(shape, H5T_NATIVE_INT64, offset.data()), "global_shape");
      EXPECT_EQ(offset, std::vector<int64_t>(t.shape.begin(), t.shape.end()));
      Hid name(H5Aopen(dataset, "name", H5P_DEFAULT), H5Aclose, "name");
      Hid type(H5Aget_type(name), H5Tclose, "name");
      std::string text(H5Tget_size(type), '\0');
      check_hdf5(H5Aread(name, type, text.data()), "name");
      EXPECT_EQ(text, t.name);
    }
}

// docs/read_checkpoint.py, with h5py alone, against the bytes we know.
TEST(View, OpensInPython) {
  std::string why;
  const std::string python = python_with("h5py", &why);
  if (python.empty()) GTEST_SKIP() << why;
  TestFolder folder;
  const fs::path saved = save_state(folder.path(), 5, 3, 4);
  const std::string command = python + " " TRIAX_SOURCE_DIR "/docs/read_checkpoint.py " + saved.string() +
                              " > " + (folder / "out").string() + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(folder / "out");
  for (const TensorRecord& t :
       read_manifest(saved).tensors)  // it prints path, shape and the hash it computed
    EXPECT_NE(read_file(folder / "out").find(fmt::format("{:016x} good", t.hash)), std::string::npos)
        << t.path();
}

}  // namespace
}  // namespace triax::test
