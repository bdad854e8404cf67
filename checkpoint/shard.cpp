#include "checkpoint/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "checkpoint/crc32c.h"
#include "checkpoint/file_io.h"
#include "checkpoint/hash.h"
#include "checkpoint/hdf5.h"

namespace triax {
namespace {

// The root attribute `identity`, a string that lies readable near the start of the file, so that a shard
// can be told from another without trusting its HDF5 structure.
std::string identity_text(const ShardIdentity& s) {
  return fmt::format("triax-shard id={} step={} shard={}/{};", s.id, s.step, s.index, s.count);
}

void create_dataset(hid_t file, const StatePiece& piece, hid_t link_properties, hid_t dataset_properties,
                    int64_t* byte_offset) {
  const std::string path = dataset_path(piece.kind, piece.name, piece.box);
  Hid space = make_space(piece.box.extent);
  Hid dataset(
      H5Dcreate2(file, path.c_str(), H5T_IEEE_F32LE, space, link_properties, dataset_properties, H5P_DEFAULT),
      H5Dclose, path);
  write_attribute(dataset, "name", std::string_view(piece.name));
  write_attribute(dataset, "kind", name_of(piece.kind));
  write_attribute(dataset, "offset", piece.box.offset);
  write_attribute(dataset, "global_shape", piece.global);
  const haddr_t offset = H5Dget_offset(dataset);
  check(offset != HADDR_UNDEF, "HDF5 gave dataset {} no place in its file", path);
  *byte_offset = static_cast<int64_t>(offset);
}

// Lays out the file; the room of the datasets stays unwritten. Returns each piece's place in it (-1 for empty
// ones).
std::vector<int64_t> lay_out(Hdf5Image& image, const ShardIdentity& identity,
                             std::span<const StatePiece> pieces) {
  Hid root(H5Gopen2(image.file(), "/", H5P_DEFAULT), H5Gclose, "opening the root");
  write_attribute(root, "identity", std::string_view(identity_text(identity)));
  write_attribute(root, "format_version", int64_t{format_version});
  write_attribute(root, "id", std::string_view(identity.id));
  write_attribute(root, "step", identity.step);
  write_attribute(root, "shard", int64_t{identity.index});
  write_attribute(root, "shards", int64_t{identity.count});
  Hid links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "making link properties");
  check_hdf5(H5Pset_create_intermediate_group(links, 1), "making link properties");
  Hid dataset(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "making dataset properties");
  check_hdf5(H5Pset_layout(dataset, H5D_CONTIGUOUS), "choosing contiguous storage");
  check_hdf5(H5Pset_alloc_time(dataset, H5D_ALLOC_TIME_EARLY), "choosing early allocation");
  check_hdf5(H5Pset_fill_time(dataset, H5D_FILL_TIME_NEVER), "choosing no fill");
  std::vector<int64_t> places(pieces.size(), -1);
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].box.numel() > 0) create_dataset(image.file(), pieces[i], links, dataset, &places[i]);
  return places;
}

// Copies bytes [begin, end) of the laid-out file: metadata and gaps.
void append_metadata(FileWriter& writer, const Hdf5Image& image, int64_t begin, int64_t end) {
  std::vector<char> buffer(65536);
  while (begin < end) {
    const auto n = static_cast<size_t>(std::min<int64_t>(end - begin, static_cast<int64_t>(buffer.size())));
    image.read(begin, buffer.data(), n);
    writer.append(buffer.data(), n);
    begin += static_cast<int64_t>(n);
  }
}

// Writes the elements and returns their hash, both from the same memory.
uint64_t append_piece(FileWriter& writer, const StatePiece& piece, size_t index, const PieceSource& source) {
  const uint64_t key = logical_key(logical_path(piece.kind, piece.name));
  uint64_t hash = 0;
  for (int64_t begin = 0, count = piece.box.numel(); begin < count; begin += source_elements) {
    const int64_t end = std::min(begin + source_elements, count);
    const float* data = source(index, begin, end);
    hash += hash_range(key, piece.global, piece.box, begin, end, data);
    writer.append(data, static_cast<size_t>(end - begin) * sizeof(float));
  }
  return hash;
}

// "model/a [0:4], model/b [2:8] and 3 more".
std::string list_boxes(const CheckpointInfo& info, const std::vector<const BoxRecord*>& boxes) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(boxes.size(), 4); ++i)
    out += fmt::format("{}{} {}", i ? ", " : "", info.tensors[static_cast<size_t>(boxes[i]->tensor)].path(),
                       to_string(boxes[i]->box));
  if (boxes.size() > 4) out += fmt::format(" and {} more", boxes.size() - 4);
  return out;
}

std::vector<const BoxRecord*> all_boxes(const FileRecord& file) {
  std::vector<const BoxRecord*> out;
  out.reserve(file.boxes.size());
  for (const BoxRecord& b : file.boxes) out.push_back(&b);
  return out;
}

// What the file says it is, when that is not what it should be: "; it is shard 2 of 8 of step 50 (id ...)".
std::string foreign_identity(const CheckpointInfo& info, const FileRecord& file, const FileReader& reader) {
  std::string head(static_cast<size_t>(std::min<int64_t>(reader.size(), 65536)), '\0');
  reader.read(0, head.data(), head.size());
  const size_t begin = head.find("triax-shard id=");
  if (begin == std::string::npos) return "";
  const size_t end = head.find(';', begin);
  if (end == std::string::npos || end - begin > 120) return "";
  char id[17] = "";
  long long step = 0;
  int index = 0, count = 0;
  if (std::sscanf(head.c_str() + begin, "triax-shard id=%16[0-9a-f] step=%lld shard=%d/%d;", id, &step,
                  &index, &count) != 4)
    return "";
  if (id != info.id)
    return fmt::format(
        "; it is shard {} of {} of another checkpoint (step {}, id {}; this one is step {}, id {})", index,
        count, step, id, info.step, info.id);
  if (shard_name(index, count) != file.name)
    return fmt::format("; it is {} under a wrong name", shard_name(index, count));
  return "";
}

// Reads a shard once, from first byte to last.
class ShardScan {
 public:
  ShardScan(const CheckpointInfo& info, const FileRecord& file, const FileReader& reader,
            const std::function<void(int64_t)>& took)
      : info_(info), reader_(reader), took_(took), buffer_(size_t{1} << 18) {
    int64_t at = 0;
    for (const BoxRecord& b : file.boxes) {
      gap(at, b.byte_offset);
      if (box_hash(b) != b.hash) bad_.push_back(&b);
      at = b.byte_offset + 4 * b.box.numel();
    }
    gap(at, file.size);
  }
  uint32_t crc() const { return crc_; }
  const std::vector<const BoxRecord*>& bad() const { return bad_; }

 private:
  void take(int64_t begin, size_t bytes) {
    // The disk works ahead while checksums are taken.
    for (; fetched_ < begin + 2 * stretch; fetched_ += stretch) reader_.fetch(fetched_, stretch);
    reader_.read(begin, buffer_.data(), bytes);
    crc_ = crc32c(crc_, buffer_.data(), bytes);
    if (took_) took_(static_cast<int64_t>(bytes));
  }
  void gap(int64_t begin, int64_t end) {
    for (; begin < end; begin += static_cast<int64_t>(buffer_.size()))
      take(begin, static_cast<size_t>(std::min<int64_t>(end - begin, static_cast<int64_t>(buffer_.size()))));
  }
  uint64_t box_hash(const BoxRecord& b) {
    const TensorRecord& tensor = info_.tensors[static_cast<size_t>(b.tensor)];
    const uint64_t key = logical_key(tensor.path());
    const int64_t count = b.box.numel(), step = static_cast<int64_t>(buffer_.size() / 4);
    uint64_t hash = 0;
    for (int64_t i = 0; i < count; i += step) {
      const int64_t n = std::min(step, count - i);
      take(b.byte_offset + 4 * i, static_cast<size_t>(4 * n));
      hash += hash_range(key, tensor.shape, b.box, i, i + n, buffer_.data());
    }
    return hash;
  }

  static constexpr int64_t stretch = int64_t{8} << 20;
  const CheckpointInfo& info_;
  const FileReader& reader_;
  const std::function<void(int64_t)>& took_;
  int64_t fetched_ = 0;
  std::vector<unsigned char> buffer_;
  uint32_t crc_ = 0;
  std::vector<const BoxRecord*> bad_;
};

}  // namespace

std::string shard_name(int index, int count) {
  return fmt::format("shard-{:05}-of-{:05}.h5", index, count);
}

std::string dataset_path(StateKind kind, std::string_view name, const Box& box) {
  return fmt::format("/{}/{}{}", name_of(kind), name, to_string(box));
}

PieceSource pieces_in_memory(std::span<const StatePiece> pieces) {
  return [pieces](size_t piece, int64_t begin, int64_t) { return pieces[piece].data + begin; };
}

FileRecord write_shard(const std::filesystem::path& folder, const ShardIdentity& identity,
                       std::span<const StatePiece> pieces, std::span<const int> tensor,
                       const PieceSource& source) {
  FileRecord record;
  record.name = shard_name(identity.index, identity.count);
  std::vector<int64_t> places;
  std::unique_ptr<Hdf5Image> image;
  try {
    Hdf5Session session;
    image = std::make_unique<Hdf5Image>();
    places = lay_out(*image, identity, pieces);
    image->close();
  } catch (const Error& e) {
    fail("laying out {} failed: {}", (folder / record.name).string(), e.what());
  }
  std::vector<size_t> order;  // pieces by their place in the file
  for (size_t i = 0; i < pieces.size(); ++i)
    if (places[i] >= 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return places[a] < places[b]; });

  FileWriter writer(folder / record.name);
  for (size_t i : order) {
    const StatePiece& piece = pieces[i];
    append_metadata(writer, *image, writer.size(), places[i]);
    record.boxes.push_back({tensor[i], piece.box, places[i], append_piece(writer, piece, i, source)});
  }
  append_metadata(writer, *image, writer.size(), image->size());
  writer.finish();
  record.size = writer.size();
  record.crc = writer.crc();
  return record;
}

std::string contents_of(const CheckpointInfo& info, const FileRecord& file) {
  return file.boxes.empty() ? "" : "; it holds " + list_boxes(info, all_boxes(file));
}

void verify_file(const CheckpointInfo& info, const FileRecord& file,
                 const std::function<void(int64_t)>& took) {
  const std::string path = (info.folder / file.name).string();
  const std::string holds = contents_of(info, file);
  std::unique_ptr<FileReader> reader;
  try {
    reader = std::make_unique<FileReader>(path);
  } catch (const Error& e) {
    throw DamagedCheckpoint(fmt::format("{} is missing or can't be read ({}){}", path, e.what(), holds));
  }
  try {
    if (reader->size() != file.size)
      throw DamagedCheckpoint(fmt::format("{} has {} bytes instead of {}{}{}", path, reader->size(),
                                          file.size, foreign_identity(info, file, *reader), holds));
    const ShardScan scan(info, file, *reader, took);
    if (scan.crc() == file.crc && scan.bad().empty()) return;
    const std::string where =
        scan.bad().empty() ? "; only its metadata differ" : "; tensors: " + list_boxes(info, scan.bad());
    throw DamagedCheckpoint(fmt::format("{} is damaged: its checksum is {:08x} instead of {:08x}{}{}", path,
                                        scan.crc(), file.crc, foreign_identity(info, file, *reader), where));
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const Error& e) {
    throw DamagedCheckpoint(fmt::format("{}{}", e.what(), holds));
  }
}

}  // namespace triax
