#include "checkpoint/tensor_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/hash.h"

namespace triax {

TensorReader::TensorReader(const CheckpointInfo& info) : info_(info), sources_(info.tensors.size()) {
  for (size_t i = 0; i < info_.tensors.size(); ++i) index_[info_.tensors[i].path()] = i;
  for (const FileRecord& file : info_.files)
    for (const BoxRecord& box : file.boxes)
      sources_[static_cast<size_t>(box.tensor)].push_back({&box, &file});
}

const TensorRecord* TensorReader::find(const std::string& path) const {
  const auto found = index_.find(path);
  return found == index_.end() ? nullptr : &info_.tensors[found->second];
}

const FileReader& TensorReader::open(const FileRecord& file) {
  auto& reader = files_[&file];
  if (!reader) reader = std::make_unique<FileReader>(info_.folder / file.name);
  return *reader;
}

void TensorReader::read(const TensorRecord& tensor, int64_t begin, int64_t end, float* out) {
  for (const Box& wanted : boxes_of_range(whole(tensor.shape), begin, end)) {
    for (const Source& source : sources_[index_.at(tensor.path())]) {
      const Box common = intersect(wanted, source.box->box);
      if (empty(common)) continue;
      // Whole rows of the box, from which the common part is copied.
      Box rows = source.box->box;
      rows.offset[0] = common.offset[0];
      rows.extent[0] = common.extent[0];
      rows_.resize(static_cast<size_t>(rows.numel()));
      open(*source.file)
          .read(source.box->byte_offset + 4 * index_within(source.box->box, rows), rows_.data(),
                rows_.size() * sizeof(float));
      copy_box(rows, rows_.data(), wanted, out);
    }
    out += wanted.numel();
  }
}

uint64_t TensorReader::hash_of(const TensorRecord& tensor, int64_t begin, int64_t end, const float* data) {
  return hash_range(logical_key(tensor.path()), tensor.shape, whole(tensor.shape), begin, end, data);
}

void TensorReader::check_hash(const TensorRecord& tensor, uint64_t hash) const {
  if (hash == tensor.hash) return;
  throw DamagedCheckpoint(fmt::format(
      "{} in {} is damaged: its hash is {:016x} instead of {:016x}; `triax checkpoint verify` names "
      "the files",
      tensor.path(), info_.folder.string(), hash, tensor.hash));
}

}  // namespace triax
