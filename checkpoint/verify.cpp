#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "checkpoint/folders.h"
#include "checkpoint/shard.h"
#include "checkpoint/text.h"

namespace triax {
namespace {

void check_strangers(VerifyReport& report) {
  std::set<std::string> known{manifest_file};
  for (const FileRecord& f : report.info.files) known.insert(f.name);
  std::error_code error;
  for (std::filesystem::directory_iterator it(report.info.folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!known.count(name))
      report.problems.push_back(fmt::format("{} does not belong to this checkpoint", it->path().string()));
  }
  if (error)
    report.problems.push_back(fmt::format("can't list {}: {}", report.info.folder.string(), error.message()));
}

}  // namespace

VerifyReport verify_checkpoint(const std::filesystem::path& folder) {
  VerifyReport report;
  try {
    report.info = read_manifest(folder);
    if (const std::string problem = wrong_name(report.info); !problem.empty())
      report.problems.push_back(problem);
  } catch (const Error& e) {
    report.problems.push_back(e.what());
    return report;
  }
  for (const FileRecord& f : report.info.files) {
    try {
      verify_file(report.info, f);
    } catch (const Error& e) {
      report.problems.push_back(e.what());
    }
    ++report.files;
    report.bytes += f.size;
  }
  check_strangers(report);
  return report;
}

int run_checkpoint_verify(const std::filesystem::path& path, bool as_json, std::ostream& out) {
  nlohmann::json list = nlohmann::json::array();
  bool good = true;
  for (const std::filesystem::path& folder : checkpoints_at(path)) {
    const VerifyReport report = verify_checkpoint(folder);
    good = good && report.problems.empty();
    if (as_json) {
      list.push_back({{"folder", folder.string()},
                      {"good", report.problems.empty()},
                      {"step", report.info.step},
                      {"files", report.files},
                      {"tensors", report.info.tensors.size()},
                      {"bytes", report.bytes},
                      {"problems", report.problems}});
      continue;
    }
    if (report.problems.empty())
      out << fmt::format("{}: good (step {}, {} tensors, {} files, {})\n", folder.string(), report.info.step,
                         report.info.tensors.size(), report.files, readable_bytes(report.bytes));
    else
      out << fmt::format("{}: DAMAGED\n", folder.string());
    for (const std::string& problem : report.problems) out << "  " << problem << "\n";
  }
  if (as_json) out << list.dump(2) << "\n";
  return good ? 0 : 1;
}

}  // namespace triax
