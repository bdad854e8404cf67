#pragma once

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "comm/local_ranks.h"

namespace triax::test {

namespace fs = std::filesystem;

/// How often a random experiment is done: less often under the thread sanitizer, where threads start slowly.
constexpr int times(int count) {
#ifdef __SANITIZE_THREAD__
  return (count + 9) / 10;
#else
  return count;
#endif
}

inline void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}
inline std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder for one test, gone afterwards.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (fs::temp_directory_path() / "triax-checkpoint-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct LogicalTensor {
  StateKind kind;
  std::string name;
  Shape shape;
};

/// Three kinds of a few parameters of odd sizes, with one dimension and with two.
inline std::vector<LogicalTensor> small_model() {
  std::vector<LogicalTensor> out;
  for (StateKind kind : {StateKind::weight, StateKind::exp_avg, StateKind::exp_avg_sq}) {
    out.push_back({kind, "embed.tokens.weight", {37, 12}});
    out.push_back({kind, "layers.0.attention.q.weight", {12, 12}});
    out.push_back({kind, "layers.0.attention.q.bias", {12}});
    out.push_back({kind, "layers.10.mlp.up.weight", {25, 12}});
    out.push_back({kind, "final_norm.weight", {13}});
  }
  return out;
}

/// The value of an element in the state of `seed`: any bit pattern, NaNs and -0 included.
inline float value_at(const LogicalTensor& t, int64_t index, uint64_t seed) {
  uint64_t z = seed * 1000003 + static_cast<uint64_t>(index) * 7919 + std::hash<std::string>{}(t.name) +
               static_cast<uint64_t>(t.kind) * 77;
  z = (z ^ (z >> 31)) * 0x7fb5d329728ea185ull;
  z = (z ^ (z >> 27)) * 0x81dadef4bc2dd44dull;
  const auto bits = static_cast<uint32_t>(z >> 32);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

/// A rank's pieces with the memory they lie in.
struct Pieces {
  std::vector<std::unique_ptr<float[]>> memory;
  std::vector<StatePiece> list;

  void add(const LogicalTensor& t, const Box& box) {
    memory.push_back(std::make_unique<float[]>(static_cast<size_t>(box.numel())));
    list.push_back({t.kind, t.name, t.shape, box, memory.back().get()});
  }
};

/// Calls visit(piece position, global index) for each element of a box.
template <class Visit>
void each_element(const Shape& global, const Box& box, const Visit& visit) {
  const int64_t columns = global.rank() == 2 ? global[1] : 1;
  const int64_t width = global.rank() == 2 ? box.extent[1] : 1;
  for (int64_t i = 0; i < box.numel(); ++i) {
    const int64_t row = box.offset[0] + i / width;
    const int64_t column = global.rank() == 2 ? box.offset[1] + i % width : 0;
    visit(i, row * columns + column);
  }
}

inline LogicalTensor tensor_of(const StatePiece& p) {
  return {p.kind, p.name, p.global};
}

inline void fill(const Pieces& pieces, uint64_t seed) {
  for (const StatePiece& p : pieces.list)
    each_element(p.global, p.box,
                 [&](int64_t i, int64_t index) { p.data[i] = value_at(tensor_of(p), index, seed); });
}

/// Number of elements whose bits are not those of the state of `seed`.
inline int64_t wrong_elements(const Pieces& pieces, uint64_t seed) {
  int64_t wrong = 0;
  for (const StatePiece& p : pieces.list)
    each_element(p.global, p.box, [&](int64_t i, int64_t index) {
      wrong +=
          std::bit_cast<uint32_t>(value_at(tensor_of(p), index, seed)) != std::bit_cast<uint32_t>(p.data[i]);
    });
  return wrong;
}

/// Cuts each tensor over the ranks in one of several ways, a function of (seed, ranks) alone: rows, columns,
/// or a grid of columns whose parts are cut by position, as ZeRO does; the parts go to the ranks rotated.
inline Pieces cut(const std::vector<LogicalTensor>& tensors, int ranks, int rank, uint64_t seed) {
  Pieces mine;
  std::mt19937_64 random(seed);
  for (const LogicalTensor& t : tensors) {
    const auto way = random() % 3;
    const int turn = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    const int part = (rank + turn) % ranks;
    auto cut_of = [](int64_t n, int parts, int p) { return n * p / parts; };
    if (way == 0 || (way == 1 && t.shape.rank() == 1)) {
      Box box = whole(t.shape);
      box.offset[0] = cut_of(t.shape[0], ranks, part);
      box.extent[0] = cut_of(t.shape[0], ranks, part + 1) - box.offset[0];
      mine.add(t, box);
    } else if (way == 1) {
      Box box = whole(t.shape);
      box.offset[1] = cut_of(t.shape[1], ranks, part);
      box.extent[1] = cut_of(t.shape[1], ranks, part + 1) - box.offset[1];
      mine.add(t, box);
    } else {
      const int columns = ranks % 2 == 0 && t.shape.rank() == 2 ? 2 : 1;
      Box box = whole(t.shape);
      if (columns == 2) {
        box.offset[1] = cut_of(t.shape[1], 2, part % 2);
        box.extent[1] = cut_of(t.shape[1], 2, part % 2 + 1) - box.offset[1];
      }
      const int slices = ranks / columns;
      const int64_t begin = cut_of(box.numel(), slices, part / columns);
      const int64_t end = cut_of(box.numel(), slices, part / columns + 1);
      for (const Box& b : boxes_of_range(box, begin, end)) mine.add(t, b);
    }
  }
  return mine;
}

/// What the state of a step is saved with.
inline SaveRequest request_of(const fs::path& dir, int64_t step, int ranks, const Pieces& pieces,
                              int keep = 0) {
  SaveRequest request;
  request.dir = dir;
  request.step = step;
  request.consumed_samples = 32 * step;
  request.config = "name: test\n";
  request.grid = {{"ranks", ranks}};
  request.extra = {{"loss", 2.5}};
  request.pieces = pieces.list;
  request.keep = keep;
  return request;
}

/// Saves the state of `seed`, cut over `ranks` threads; returns the folder.
inline fs::path save_state(const fs::path& dir, int64_t step, int ranks, uint64_t seed, uint64_t cut_seed = 1,
                           int keep = 0) {
  fs::path folder;
  run_local_ranks(ranks, {}, [&](Communicator& world, int rank) {
    const Pieces pieces = cut(small_model(), ranks, rank, cut_seed);
    fill(pieces, seed);
    const SaveResult result = save_checkpoint(world, request_of(dir, step, ranks, pieces, keep));
    if (rank == 0) folder = result.folder;
  });
  return folder;
}

/// Loads on `ranks` threads and returns the number of elements that differ from the state of `seed`.
inline int64_t load_and_compare(const fs::path& folder, int ranks, uint64_t seed, uint64_t cut_seed = 2) {
  std::atomic<int64_t> wrong = 0;
  run_local_ranks(ranks, {}, [&](Communicator& world, int rank) {
    const Pieces pieces = cut(small_model(), ranks, rank, cut_seed);
    load_checkpoint(world, folder, pieces.list);
    wrong += wrong_elements(pieces, seed);
  });
  return wrong;
}

/// The message of the Error that loading on two ranks throws; empty when it loads.
inline std::string load_error(const fs::path& folder, int ranks = 2) {
  try {
    load_and_compare(folder, ranks, 0);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace triax::test
