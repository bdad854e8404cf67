#include "checkpoint/list.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ostream>

#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/text.h"

namespace triax {
namespace {

using nlohmann::json;

struct Entry {
  std::filesystem::path folder;
  std::optional<CheckpointInfo> info;  // what the manifest says, when it is valid
  std::string problem;                 // empty: complete
};

Entry look_at(const std::filesystem::path& folder) {
  Entry entry{folder, {}, ""};
  try {
    entry.info = read_manifest(folder);
    read_complete(folder);
  } catch (const Error& e) {
    entry.problem = e.what();
  }
  return entry;
}

json to_json(const Entry& e) {
  json j{{"folder", e.folder.string()}, {"complete", e.problem.empty()}};
  if (!e.problem.empty()) j["problem"] = e.problem;
  if (!e.info) return j;
  j["step"] = e.info->step;
  j["consumed_samples"] = e.info->consumed_samples;
  j["loss"] = e.info->extra.is_object() ? e.info->extra.value("loss", json()) : json();
  j["bytes"] = e.info->bytes();
  j["shards"] = e.info->files.size() - 1;
  j["created"] = e.info->created;
  j["id"] = e.info->id;
  return j;
}

std::string loss_of(const CheckpointInfo& info) {
  if (!info.extra.is_object() || !info.extra.contains("loss") || !info.extra["loss"].is_number()) return "-";
  return fmt::format("{:.4f}", info.extra["loss"].get<double>());
}

std::string row(const Entry& e) {
  const std::string name = e.folder.filename().string();
  if (!e.info) return fmt::format("{:<24} {:>8}  incomplete: {}\n", name, "-", e.problem);
  return fmt::format("{:<24} {:>8} {:>10} {:>12} {:>7}  {}  {}\n", name, e.info->step, loss_of(*e.info),
                     readable_bytes(e.info->bytes()), e.info->files.size() - 1, e.info->created,
                     e.problem.empty() ? "complete" : "incomplete: " + e.problem);
}

json details(const CheckpointInfo& info) {
  json tensors = json::array(), files = json::array();
  for (const TensorRecord& t : info.tensors)
    tensors.push_back({{"path", t.path()},
                       {"name", t.name},
                       {"kind", name_of(t.kind)},
                       {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())},
                       {"hash", fmt::format("{:016x}", t.hash)}});
  for (const FileRecord& f : info.files)
    files.push_back({{"name", f.name},
                     {"size", f.size},
                     {"crc32c", fmt::format("{:08x}", f.crc)},
                     {"boxes", f.boxes.size()}});
  return json{{"folder", info.folder.string()},
              {"id", info.id},
              {"step", info.step},
              {"consumed_samples", info.consumed_samples},
              {"created", info.created},
              {"grid", info.grid},
              {"extra", info.extra},
              {"config", info.config},
              {"bytes", info.bytes()},
              {"tensors", tensors},
              {"files", files}};
}

void print_details(const CheckpointInfo& info, std::ostream& out) {
  int64_t parameters = 0;
  size_t width = 0;
  for (const TensorRecord& t : info.tensors) {
    if (t.kind == StateKind::weight) parameters += t.shape.numel();
    width = std::max(width, t.path().size());
  }
  out << fmt::format("folder            {}\n", info.folder.string());
  out << fmt::format("step              {}\n", info.step);
  out << fmt::format("consumed samples  {}\n", info.consumed_samples);
  out << fmt::format("loss              {}\n", loss_of(info));
  out << fmt::format("created           {}\n", info.created);
  out << fmt::format("id                {}\n", info.id);
  out << fmt::format("grid              {}\n",
                     info.grid.is_string() ? info.grid.get<std::string>() : info.grid.dump());
  out << fmt::format("size              {} in {} shards\n", readable_bytes(info.bytes()),
                     info.files.size() - 1);
  out << fmt::format("parameters        {}\n\n", parameters);
  out << fmt::format("{:<{}}  {:<16}  {}\n", "tensor", width, "hash", "shape");
  for (const TensorRecord& t : info.tensors)
    out << fmt::format("{:<{}}  {:016x}  {}\n", t.path(), width, t.hash, to_string(t.shape));
}

}  // namespace

int run_checkpoint_ls(const std::filesystem::path& path, bool as_json, std::ostream& out) {
  std::vector<Entry> entries;
  for (const std::filesystem::path& folder : checkpoints_at(path)) entries.push_back(look_at(folder));
  if (as_json) {
    json list = json::array();
    for (const Entry& e : entries) list.push_back(to_json(e));
    out << list.dump(2) << "\n";
    return 0;
  }
  out << fmt::format("{:<24} {:>8} {:>10} {:>12} {:>7}  {:<20}  {}\n", "checkpoint", "step", "loss", "size",
                     "shards", "created", "state");
  for (const Entry& e : entries) out << row(e);
  return 0;
}

int run_checkpoint_inspect(const std::filesystem::path& path, bool as_json, std::ostream& out) {
  std::vector<std::filesystem::path> folders = checkpoints_at(path);
  std::reverse(folders.begin(), folders.end());
  std::string problems;
  for (const std::filesystem::path& folder : folders) {
    const Entry entry = look_at(folder);
    if (!entry.problem.empty()) problems += (problems.empty() ? "" : "\n") + entry.problem;
    if (!entry.info || (!entry.problem.empty() && folders.size() > 1)) continue;
    if (as_json) {
      json j = details(*entry.info);
      j["complete"] = entry.problem.empty();
      if (!problems.empty()) j["problems"] = problems;
      out << j.dump(2) << "\n";
    } else {
      print_details(*entry.info, out);
      if (!problems.empty()) out << "\n" << problems << "\n";
    }
    return entry.problem.empty() ? 0 : 1;
  }
  fail("{} holds no complete checkpoint:\n{}", path.string(), problems);
}

}  // namespace triax
