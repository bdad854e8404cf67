#include "checkpoint/writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <atomic>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
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

}  // namespace

struct Save::Impl {
  Impl(Communicator& w, SaveRequest r) : world(w), request(std::move(r)) {
    if (!request.source) request.source = pieces_in_memory(request.pieces);
  }
  void plan();
  void open_folder();
  void write_own_shard();
  void complete();
  CheckpointInfo describe() const;
  std::filesystem::path newest_complete() const;
  /// Runs a phase that talks to nobody.
  void attempt(const std::function<void()>& body) {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  /// Throws the failure of any rank on all.
  void settle() {
    collectively(world, [&] {
      if (failure) std::rethrow_exception(failure);
    });
  }

  Communicator& world;
  SaveRequest request;
  std::string id;
  SavePlan save_plan;                       // rank 0
  std::unique_ptr<TemporaryFolder> folder;  // rank 0
  std::filesystem::path path;               // of the temporary folder
  FileRecord shard;                         // this rank's
  std::vector<std::string> records;         // of all shards; rank 0
  std::exception_ptr failure;
  std::atomic<bool> given_up = false;
  SaveResult result;
};

void Save::Impl::plan() {
  std::string description;
  collectively(world, [&] {
    check(request.step >= 0, "a checkpoint of step {} can't be saved", request.step);
    description = describe_pieces(request.pieces);
  });
  const auto descriptions = gather_bytes(world, description, 0);
  collectively(world, [&] {
    if (world.rank() == 0) save_plan = plan_save(descriptions);
  });
}

void Save::Impl::open_folder() {
  std::string name;
  collectively(world, [&] {
    if (world.rank() != 0) return;
    id = draw_id();
    std::error_code ignored;
    if (std::filesystem::exists(request.dir, ignored)) remove_stale(request.dir, result.warnings);
    folder = std::make_unique<TemporaryFolder>(request.dir, request.step, id);
    name = folder->path().string();
  });
  broadcast_bytes(world, id, 0);
  broadcast_bytes(world, name, 0);
  path = name;
}

void Save::Impl::write_own_shard() {
  std::vector<int> index(request.pieces.size());  // rank 0 translates them to the tensors'
  std::iota(index.begin(), index.end(), 0);
  shard = write_shard(path, {id, request.step, world.rank(), world.size()}, request.pieces, index,
                      [this](size_t piece, int64_t begin, int64_t end) {
                        check(!given_up, "the save of step {} was given up", request.step);
                        return request.source(piece, begin, end);
                      });
}

// What was saved, but for a later step that lies there already (a merge into a folder that is in use).
std::filesystem::path Save::Impl::newest_complete() const {
  for (const StepFolder& other : step_folders(request.dir)) {
    if (other.step <= request.step) break;
    try {
      read_complete(other.path);
      return other.path;
    } catch (const Error&) {  // not one to point at
    }
  }
  return result.folder;
}

// All shards are durable.
void Save::Impl::complete() {
  CheckpointInfo info = describe();
  info.files.push_back(write_view(path, info));
  FileWriter manifest(path / manifest_file);
  const std::string text = manifest_text(info);
  manifest.append(text.data(), text.size());
  manifest.finish();
  check(!given_up, "the save of step {} was given up", request.step);
  result.bytes = info.bytes() + static_cast<int64_t>(text.size());
  result.folder = folder->commit(result.warnings);
  // The checkpoint is safe; what fails from here on does no harm to it.
  try {
    replace_file(request.dir / "latest", newest_complete().filename().string() + "\n");
    result.removed = apply_retention(request.dir, request.keep, result.folder, result.warnings);
  } catch (const std::exception& e) {
    result.warnings.push_back(e.what());
  }
}

CheckpointInfo Save::Impl::describe() const {
  CheckpointInfo info;
  info.id = id;
  info.step = request.step;
  info.consumed_samples = request.consumed_samples;
  info.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  info.grid = request.grid;
  info.config = request.config;
  info.extra = request.extra;
  info.tensors = save_plan.tensors;
  for (int r = 0; r < world.size(); ++r) {
    FileRecord file = unpack(records[static_cast<size_t>(r)]);
    file.name = shard_name(r, world.size());
    const std::vector<Box>& boxes = save_plan.boxes[static_cast<size_t>(r)];
    for (BoxRecord& b : file.boxes) {
      b.box = boxes[static_cast<size_t>(b.tensor)];
      b.tensor = save_plan.tensor[static_cast<size_t>(r)][static_cast<size_t>(b.tensor)];
      info.tensors[static_cast<size_t>(b.tensor)].hash += b.hash;
    }
    info.files.push_back(std::move(file));
  }
  return info;
}

Save::Save(Communicator& world, SaveRequest request)
    : impl_(std::make_unique<Impl>(world, std::move(request))) {
  impl_->plan();
  impl_->open_folder();
}

Save::~Save() = default;

void Save::write() {
  impl_->attempt([&] { impl_->write_own_shard(); });
}

void Save::exchange() {
  impl_->settle();
  impl_->records = gather_bytes(impl_->world, pack(impl_->shard), 0);
}

void Save::complete() {
  if (impl_->world.rank() == 0) impl_->attempt([&] { impl_->complete(); });
}

SaveResult Save::finish() {
  impl_->settle();
  SaveResult& result = impl_->result;
  std::string path = result.folder.string();
  broadcast_bytes(impl_->world, path, 0);
  result.folder = path;
  result.step = impl_->request.step;
  impl_->world.broadcast(Tensor::of(&result.bytes, {1}), 0).wait();
  return result;
}

void Save::give_up() {
  impl_->given_up = true;
}

SaveResult save_checkpoint(Communicator& world, const SaveRequest& request) {
  Save save(world, request);
  save.write();
  save.exchange();
  save.complete();
  return save.finish();
}

}  // namespace triax
