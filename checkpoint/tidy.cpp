#include "checkpoint/tidy.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/folders.h"
#include "checkpoint/tensor_reader.h"
#include "checkpoint/text.h"
#include "checkpoint/writer.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Source of the elements that a merged shard is written from; compares the hash of each tensor that it has
// read to the end.
class WholeTensors {
 public:
  explicit WholeTensors(const CheckpointInfo& info) : reader_(info), buffer_(TensorReader::part) {
    for (const TensorRecord& t : reader_.info().tensors)
      pieces_.push_back({t.kind, t.name, t.shape, whole(t.shape), buffer_.data()});
  }
  const std::vector<StatePiece>& pieces() const { return pieces_; }
  const float* read(size_t piece, int64_t begin, int64_t end) {
    const TensorRecord& tensor = reader_.info().tensors[piece];
    reader_.read(tensor, begin, end, buffer_.data());
    if (begin == 0) hash_ = 0;
    hash_ += TensorReader::hash_of(tensor, begin, end, buffer_.data());
    if (end == tensor.shape.numel()) reader_.check_hash(tensor, hash_);
    return buffer_.data();
  }

 private:
  TensorReader reader_;
  std::vector<float> buffer_;
  std::vector<StatePiece> pieces_;
  uint64_t hash_ = 0;
};
static_assert(TensorReader::part >= source_elements);

}  // namespace

int run_checkpoint_prune(const fs::path& path, int keep, bool dry_run, bool as_json, std::ostream& out) {
  const fs::path newest = checkpoints_at(path).back();
  const fs::path dir = fs::absolute(newest).parent_path();
  if (newest == path)
    fail_usage("{} is one checkpoint; give the folder of a run or of its checkpoints", path.string());
  std::vector<std::string> warnings;
  if (!dry_run) remove_stale(dir, warnings);
  const std::vector<std::string> removed =
      apply_retention(dir, keep, {}, warnings, {dry_run, /*verify=*/true});
  json kept = json::array();
  for (const StepFolder& folder : step_folders(dir)) {
    const std::string name = folder.path.filename().string();
    if (std::find(removed.begin(), removed.end(), name) == removed.end()) kept.push_back(name);
  }
  if (as_json) {
    out << json{{"folder", dir.string()},
                {"dry_run", dry_run},
                {"removed", removed},
                {"kept", kept},
                {"problems", warnings}}
               .dump(2)
        << "\n";
  } else {
    for (const std::string& name : removed) out << (dry_run ? "would delete " : "deleted ") << name << "\n";
    for (const json& name : kept) out << "kept " << name.get<std::string>() << "\n";
    for (const std::string& warning : warnings) out << warning << "\n";
  }
  return warnings.empty() ? 0 : 1;
}

int run_checkpoint_merge(const fs::path& path, const fs::path& target, bool as_json, std::ostream& out) {
  const CheckpointInfo info = newest_at(path);
  const fs::path folder = target / step_folder_name(info.step);
  if (fs::exists(folder))
    fail_usage("{} is there already; give another folder to merge into", folder.string());
  WholeTensors tensors(info);
  SaveRequest save;
  save.dir = target;
  save.step = info.step;
  save.consumed_samples = info.consumed_samples;
  save.config = info.config;
  save.grid = info.grid;
  save.extra = info.extra;
  save.extra["merged_from"] = info.id;
  save.pieces = tensors.pieces();
  save.source = [&](size_t piece, int64_t begin, int64_t end) { return tensors.read(piece, begin, end); };
  const auto alone = make_self_communicator({});
  const SaveResult result = save_checkpoint(*alone, save);
  if (as_json)
    out << json{{"source", info.folder.string()},
                {"folder", result.folder.string()},
                {"step", info.step},
                {"bytes", result.bytes},
                {"tensors", info.tensors.size()},
                {"problems", result.warnings}}
               .dump(2)
        << "\n";
  else
    out << fmt::format("merged {} shards of {} into {} ({})\n", info.files.size() - 1, info.folder.string(),
                       result.folder.string(), readable_bytes(result.bytes));
  for (const std::string& warning : result.warnings)
    if (!as_json) out << warning << "\n";
  return 0;
}

}  // namespace triax
