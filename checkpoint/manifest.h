#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "core/error.h"

namespace triax {

/// A checkpoint, or a part of it, is not what was written: damaged, missing, truncated, swapped or foreign.
/// Another, older checkpoint may still do; every other Error would repeat itself with that one.
class DamagedCheckpoint : public Error {
 public:
  explicit DamagedCheckpoint(std::string message,
                             std::source_location place = std::source_location::current(),
                             ErrorKind kind = ErrorKind::fault)
      : Error(kind, std::move(message), place) {}
};

/// One logical tensor.
struct TensorRecord {
  StateKind kind = StateKind::weight;
  std::string name;
  Shape shape;
  uint64_t hash = 0;  ///< logical hash of the whole, checkpoint/hash.h

  std::string path() const { return logical_path(kind, name); }
};

/// One box of a tensor in a shard: contiguous, row-major, little-endian fp32 at a byte of the file.
struct BoxRecord {
  int tensor = 0;  ///< index in CheckpointInfo::tensors
  Box box;
  int64_t byte_offset = 0;
  uint64_t hash = 0;  ///< logical hash of the box; those of a tensor's boxes add up to the tensor's
};

/// One file of the folder besides the manifest.
struct FileRecord {
  std::string name;
  int64_t size = 0;
  uint32_t crc = 0;              ///< CRC-32C of all its bytes
  std::vector<BoxRecord> boxes;  ///< by byte_offset; empty for the view
};

/// What a manifest says.
struct CheckpointInfo {
  std::filesystem::path folder;
  std::string id;  ///< 16 hexadecimal digits drawn for this save; every shard carries them
  int64_t step = 0;
  int64_t consumed_samples = 0;
  std::string created;   ///< "2026-11-21T10:45:00Z"
  nlohmann::json grid;   ///< the grid that wrote it, as the writer described it
  std::string config;    ///< the effective configuration, YAML
  nlohmann::json extra;  ///< whatever the writer added: loss, fingerprints of the data, ...
  std::vector<TensorRecord> tensors;
  std::vector<FileRecord> files;  ///< shards in rank order, then checkpoint.h5

  int64_t bytes() const;  ///< of all files, without the manifest
};

inline constexpr const char* manifest_file = "manifest.json";
inline constexpr const char* view_file = "checkpoint.h5";
inline constexpr int format_version = 1;

/// The manifest's text, ending with its own checksum: the CRC-32C of all bytes before the last line.
std::string manifest_text(const CheckpointInfo& info);
/// The inverse; throws DamagedCheckpoint naming `folder`'s manifest when text, checksum or content are wrong,
/// Error when its format version is a newer one.
CheckpointInfo parse_manifest(const std::string& text, const std::filesystem::path& folder);
/// Reads <folder>/manifest.json. Throws DamagedCheckpoint when there is none, Error when it can't be read.
CheckpointInfo read_manifest(const std::filesystem::path& folder);

/// True when `a` comes before `b` with numbers in them compared as numbers: "layers.2" before "layers.10".
bool natural_less(std::string_view a, std::string_view b);

}  // namespace triax
