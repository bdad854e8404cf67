#include "checkpoint/writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>

#include "checkpoint/agree.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/plan.h"
#include "checkpoint/shard.h"
#include "checkpoint/view.h"

namespace triax {
namespace {

using nlohmann::json;

std::string draw_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// A shard's record on its way to rank 0; boxes name this rank's pieces by index.
std::string pack(const FileRecord& record) {
  json boxes = json::array();
  for (const BoxRecord& b : record.boxes) boxes.push_back({b.tensor, b.byte_offset, b.hash});
  const auto bytes = json::to_cbor(json{{"size", record.size}, {"crc", record.crc}, {"boxes", boxes}});
  return std::string(bytes.begin(), bytes.end());
}

FileRecord unpack(const std::string& bytes) {
  const json j = json::from_cbor(bytes.begin(), bytes.end());
  FileRecord record;
  record.size = j.at("size").get<int64_t>();
  record.crc = j.at("crc").get<uint32_t>();
  for (const json& b : j.at("boxes"))
    record.boxes.push_back({b.at(0).get<int>(), {}, b.at(1).get<int64_t>(), b.at(2).get<uint64_t>()});
  return record;
}

/// One save in progress on one rank.
class Save {
 public:
  Save(Communicator& world, const SaveRequest& request) : world_(world), request_(request) {}

  SaveResult run() {
    plan();
    open_folder();
    FileRecord mine;
    collectively(world_, [&] { mine = write_own_shard(); });
    const auto records = gather_bytes(world_, pack(mine), 0);
    collectively(world_, [&] {
      if (world_.rank() == 0) complete(records);
    });
    broadcast_result();
    return result_;
  }

 private:
  void plan() {
    std::string description;
    collectively(world_, [&] {
      check(request_.step >= 0, "a checkpoint of step {} can't be saved", request_.step);
      description = describe_pieces(request_.pieces);
    });
    descriptions_ = gather_bytes(world_, description, 0);
    collectively(world_, [&] {
      if (world_.rank() == 0) plan_ = plan_save(descriptions_);
    });
  }

  void open_folder() {
    if (world_.rank() == 0) id_ = draw_id();
    broadcast_bytes(world_, id_, 0);
    std::string path;
    collectively(world_, [&] {
      if (world_.rank() != 0) return;
      std::error_code ignored;
      if (std::filesystem::exists(request_.dir, ignored)) remove_stale(request_.dir, result_.warnings);
      folder_ = std::make_unique<TemporaryFolder>(request_.dir, request_.step, id_);
      path = folder_->path().string();
    });
    broadcast_bytes(world_, path, 0);
    path_ = path;
  }

  FileRecord write_own_shard() {
    std::vector<int> index(request_.pieces.size());
    for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int>(i);
    return write_shard(path_, {id_, request_.step, world_.rank(), world_.size()}, request_.pieces, index);
  }

  // Rank 0, when all shards are durable.
  void complete(const std::vector<std::string>& records) {
    CheckpointInfo info = describe(records);
    info.files.push_back(write_view(path_, info));
    FileWriter manifest(path_ / manifest_file);
    const std::string text = manifest_text(info);
    manifest.append(text.data(), text.size());
    manifest.finish();
    result_.bytes = info.bytes() + static_cast<int64_t>(text.size());
    result_.folder = folder_->commit(result_.warnings);
    // The checkpoint is safe; what fails from here on does no harm to it.
    try {
      replace_file(request_.dir / "latest", result_.folder.filename().string() + "\n");
      result_.removed = apply_retention(request_.dir, request_.keep, result_.folder, result_.warnings);
    } catch (const std::exception& e) {
      result_.warnings.push_back(e.what());
    }
  }

  CheckpointInfo describe(const std::vector<std::string>& records) {
    CheckpointInfo info;
    info.id = id_;
    info.step = request_.step;
    info.consumed_samples = request_.consumed_samples;
    info.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    info.grid = request_.grid;
    info.config = request_.config;
    info.extra = request_.extra;
    info.tensors = plan_.tensors;
    for (int r = 0; r < world_.size(); ++r) {
      FileRecord file = unpack(records[static_cast<size_t>(r)]);
      file.name = shard_name(r, world_.size());
      const std::vector<Box>& boxes = plan_.boxes[static_cast<size_t>(r)];
      for (BoxRecord& b : file.boxes) {
        b.box = boxes[static_cast<size_t>(b.tensor)];
        b.tensor = plan_.tensor[static_cast<size_t>(r)][static_cast<size_t>(b.tensor)];
        info.tensors[static_cast<size_t>(b.tensor)].hash += b.hash;
      }
      info.files.push_back(std::move(file));
    }
    return info;
  }

  void broadcast_result() {
    std::string path = result_.folder.string();
    broadcast_bytes(world_, path, 0);
    result_.folder = path;
    world_.broadcast(Tensor::of(&result_.bytes, {1}), 0).wait();
  }

  Communicator& world_;
  const SaveRequest& request_;
  std::string id_;
  std::vector<std::string> descriptions_;    // rank 0
  SavePlan plan_;                            // rank 0
  std::unique_ptr<TemporaryFolder> folder_;  // rank 0
  std::filesystem::path path_;               // of the temporary folder
  SaveResult result_;
};

}  // namespace

SaveResult save_checkpoint(Communicator& world, const SaveRequest& request) {
  return Save(world, request).run();
}

}  // namespace triax
