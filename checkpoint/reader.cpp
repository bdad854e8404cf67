#include "checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "checkpoint/agree.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folders.h"
#include "checkpoint/shard.h"

namespace triax {
namespace {

using nlohmann::json;

/// One rank's reading of its pieces.
class BoxReader {
 public:
  BoxReader(const CheckpointInfo& info, std::span<const StatePiece> pieces) : info_(info), pieces_(pieces) {
    std::map<std::pair<StateKind, std::string_view>, int> index;
    for (size_t i = 0; i < info.tensors.size(); ++i)
      index[{info.tensors[i].kind, info.tensors[i].name}] = static_cast<int>(i);
    wanted_.resize(info.tensors.size());
    for (const StatePiece& piece : pieces) {
      const auto found = index.find({piece.kind, piece.name});
      const std::string path = logical_path(piece.kind, piece.name);
      if (found == index.end())
        fail("{} has no tensor {}; `triax checkpoint inspect` lists those it has", info.folder.string(),
             path);
      const TensorRecord& tensor = info.tensors[static_cast<size_t>(found->second)];
      if (!(tensor.shape == piece.global))
        fail("{} in {} has the shape {}; this model's is {}", path, info.folder.string(),
             to_string(tensor.shape), to_string(piece.global));
      if (!empty(piece.box)) wanted_[static_cast<size_t>(found->second)].push_back(&piece);
    }
  }

  int64_t needed() const {
    int64_t elements = 0;
    for (const StatePiece& p : pieces_) elements += p.box.numel();
    return elements;
  }

  /// Boxes of different files are different elements, so files may be read at the same time. Returns the
  /// number of elements.
  int64_t read_file(const FileRecord& file) const {
    std::optional<FileReader> reader;
    std::vector<float> buffer;
    int64_t copied = 0;
    for (const BoxRecord& source : file.boxes)
      for (const StatePiece* piece : wanted_[static_cast<size_t>(source.tensor)]) {
        const Box common = intersect(source.box, piece->box);
        if (empty(common)) continue;
        if (!reader) reader.emplace(info_.folder / file.name);
        read_common(*reader, source, common, *piece, buffer);
        copied += common.numel();
      }
    return copied;
  }

 private:
  // Whole rows of the source, as many as the buffer holds at a time; straight to the piece where they lie
  // there as in the file.
  static void read_common(const FileReader& reader, const BoxRecord& source, const Box& common,
                          const StatePiece& piece, std::vector<float>& buffer) {
    const int64_t row = source.box.numel() / source.box.extent[0];
    const int64_t rows_at_once = std::max<int64_t>(1, buffer_bytes / 4 / row);
    const bool straight = same_rows(source.box, common) && same_rows(piece.box, common);
    for (int64_t first = 0; first < common.extent[0];) {
      const int64_t count = straight ? common.extent[0] : std::min(rows_at_once, common.extent[0] - first);
      Box slab = source.box;
      slab.offset[0] = common.offset[0] + first;
      slab.extent[0] = count;
      const int64_t at = source.byte_offset + 4 * index_within(source.box, slab);
      const auto elements = static_cast<size_t>(slab.numel());
      if (straight) {
        reader.read(at, piece.data + index_within(piece.box, slab), elements * 4);
      } else {
        buffer.resize(std::max(buffer.size(), elements));
        reader.read(at, buffer.data(), elements * 4);
        copy_box(slab, buffer.data(), piece.box, piece.data);
      }
      first += count;
    }
  }

  // True when rows of `part` are whole rows of `box`.
  static bool same_rows(const Box& box, const Box& part) {
    for (int i = 1; i < box.extent.rank(); ++i)
      if (box.extent[i] != part.extent[i]) return false;
    return true;
  }

  static constexpr int64_t buffer_bytes = int64_t{8} << 20;
  const CheckpointInfo& info_;
  std::span<const StatePiece> pieces_;
  std::vector<std::vector<const StatePiece*>> wanted_;  // by tensor
};

// Spreads the files over the ranks, largest first to the rank with least.
std::vector<size_t> files_of(const CheckpointInfo& info, const Communicator& world) {
  std::vector<size_t> order(info.files.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return info.files[a].size > info.files[b].size; });
  std::vector<int64_t> load(static_cast<size_t>(world.size()));
  std::vector<size_t> mine;
  for (size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += info.files[i].size;
    if (least - load.begin() == world.rank()) mine.push_back(i);
  }
  return mine;
}

/// Counts the bytes of several threads and tells about them once a second.
class Progress {
 public:
  Progress(const LoadOptions& options, int64_t total) : options_(options), total_(total) {}
  void add(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (!options_.progress || now - told_ < std::chrono::seconds(1)) return;
    told_ = now;
    options_.progress(done_, total_);
  }

 private:
  const LoadOptions& options_;
  std::mutex mutex_;
  int64_t done_ = 0, total_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

// Calls body(0), ..., body(count - 1), which throw nothing, on several threads, in this order.
void in_parallel(int threads, size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < std::min(threads, static_cast<int>(count)); ++t) others.emplace_back(work);
  work();
}

// All damaged files of a rank in one message, so that one look at it is enough.
void verify_files(const CheckpointInfo& info, const std::vector<size_t>& files, int threads,
                  Progress& progress) {
  std::vector<std::string> problems(files.size());
  std::vector<std::exception_ptr> faults(files.size());
  in_parallel(threads, files.size(), [&](size_t i) {
    try {
      verify_file(info, info.files[files[i]], [&](int64_t bytes) { progress.add(bytes); });
    } catch (const DamagedCheckpoint& e) {
      problems[i] = e.what();
    } catch (...) {
      faults[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
  std::string all;
  for (const std::string& p : problems)
    if (!p.empty()) all += (all.empty() ? "" : "\n") + p;
  if (!all.empty()) throw DamagedCheckpoint(all);
}

void read_files(const CheckpointInfo& info, const BoxReader& reader, int threads, Progress& progress) {
  std::atomic<int64_t> copied = 0;
  std::vector<std::exception_ptr> faults(info.files.size());
  in_parallel(threads, info.files.size(), [&](size_t i) {
    try {
      const int64_t elements = reader.read_file(info.files[i]);
      copied += elements;
      progress.add(4 * elements);
    } catch (...) {
      faults[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
  // The manifest's boxes cover each tensor (it was checked), so nothing can be left out.
  check(copied == reader.needed(), "{} of {} elements were found in {}", copied.load(), reader.needed(),
        info.folder.string());
}

}  // namespace

FoundCheckpoint find_checkpoint(const std::filesystem::path& dir,
                                const std::set<std::filesystem::path>& skip) {
  FoundCheckpoint found;
  for (const StepFolder& folder : step_folders(dir)) {
    if (skip.count(folder.path)) continue;
    try {
      found.info = read_complete(folder.path);
      return found;
    } catch (const DamagedCheckpoint& e) {
      found.problems.push_back(e.what());
    }
  }
  return found;
}

FoundCheckpoint find_checkpoint(Communicator& world, const std::filesystem::path& dir,
                                const std::set<std::filesystem::path>& skip) {
  std::string message;
  FoundCheckpoint found;
  collectively(world, [&] {
    if (world.rank() != 0) return;
    found = find_checkpoint(dir, skip);
    message = json{{"problems", found.problems},
                   {"folder", found.info ? found.info->folder.string() : ""},
                   {"manifest", found.info ? manifest_text(*found.info) : ""}}
                  .dump();
  });
  broadcast_bytes(world, message, 0);
  collectively(world, [&] {
    if (world.rank() == 0) return;
    const json j = json::parse(message);
    found.problems = j.at("problems").get<std::vector<std::string>>();
    const auto text = j.at("manifest").get<std::string>();
    if (!text.empty()) found.info = parse_manifest(text, j.at("folder").get<std::string>());
  });
  return found;
}

CheckpointInfo read_manifest(Communicator& world, const std::filesystem::path& folder) {
  std::string text;
  CheckpointInfo info;
  collectively(world, [&] {
    if (world.rank() != 0) return;
    info = read_manifest(folder);
    text = manifest_text(info);
  });
  broadcast_bytes(world, text, 0);
  collectively(world, [&] {
    if (world.rank() != 0) info = parse_manifest(text, folder);
  });
  return info;
}

void load_checkpoint(Communicator& world, const CheckpointInfo& info, std::span<const StatePiece> pieces,
                     const LoadOptions& options) {
  std::optional<BoxReader> reader;
  collectively(world, [&] { reader.emplace(info, pieces); });
  const std::vector<size_t> files = files_of(info, world);
  int64_t bytes = 4 * reader->needed();
  for (size_t i : files) bytes += info.files[i].size;
  Progress progress(options, bytes);
  collectively(world, [&] { verify_files(info, files, options.threads, progress); });
  collectively(world, [&] { read_files(info, *reader, options.threads, progress); });
}

CheckpointInfo load_checkpoint(Communicator& world, const std::filesystem::path& folder,
                               std::span<const StatePiece> pieces, const LoadOptions& options) {
  CheckpointInfo info = read_manifest(world, folder);
  load_checkpoint(world, info, pieces, options);
  return info;
}

}  // namespace triax
