#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace triax {

/// Which shard of which checkpoint a file is; written into it as the attributes of its root.
struct ShardIdentity {
  std::string id;  ///< of the checkpoint
  int64_t step = 0;
  int index = 0, count = 1;

  bool operator==(const ShardIdentity&) const = default;
};

/// "shard-00003-of-00008.h5".
std::string shard_name(int index, int count);

/// "/weight/layers.0.mlp.up.weight[0:64, 0:32]": the dataset of a box in a shard.
std::string dataset_path(StateKind kind, std::string_view name, const Box& box);

/// Where the elements of pieces come from while a shard is written: the row-major positions [begin, end) of
/// pieces[piece], valid until the next call. Asked for in ascending order, each position once, at most
/// source_elements at a time.
using PieceSource = std::function<const float*(size_t piece, int64_t begin, int64_t end)>;
inline constexpr int64_t source_elements = int64_t{1} << 18;  ///< 1 MiB, which stays in a core's cache

/// The elements at StatePiece::data.
PieceSource pieces_in_memory(std::span<const StatePiece> pieces);

/// Writes <folder>/<shard name>: an HDF5 file with a contiguous dataset for each piece that is not empty,
/// laid out in memory under the HDF5 lock and then written from first byte to last, fsynced. tensor[i] is the
/// index of pieces[i]'s tensor for the record that is returned: size, checksum of all bytes, boxes with
/// places and hashes.
FileRecord write_shard(const std::filesystem::path& folder, const ShardIdentity& identity,
                       std::span<const StatePiece> pieces, std::span<const int> tensor,
                       const PieceSource& source);

/// "; it holds /model/lm_head.weight [0:4, 0:8], ... and 3 more", for messages; empty for the view.
std::string contents_of(const CheckpointInfo& info, const FileRecord& file);

/// Reads one shard from first byte to last and checks all that the manifest says about it: size, checksum,
/// hash of each box, identity. Throws DamagedCheckpoint naming the file, what is wrong and the tensors
/// concerned. `took`, if given, is told the number of bytes after each read.
void verify_file(const CheckpointInfo& info, const FileRecord& file,
                 const std::function<void(int64_t bytes)>& took = nullptr);

}  // namespace triax
