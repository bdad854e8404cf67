// What `triax checkpoint` says and does, besides listing and verifying.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "checkpoint/compare.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folders.h"
#include "checkpoint/tidy.h"
#include "checkpoint/verify.h"
#include "logical_state.h"

namespace triax::test {
namespace {

using nlohmann::json;

// A checkpoint of one vector per name, cut over two ranks.
fs::path save_vectors(const fs::path& dir, int64_t step,
                      const std::map<std::string, std::vector<float>>& vectors) {
  fs::path folder;
  run_local_ranks(2, {}, [&](Communicator& world, int rank) {
    Pieces pieces;
    for (const auto& [name, values] : vectors) {
      const auto n = static_cast<int64_t>(values.size());
      const int64_t begin = rank * (n / 3), end = rank ? n : n / 3;
      pieces.add({StateKind::weight, name, {n}}, {{begin}, {end - begin}});
      std::copy(values.begin() + begin, values.begin() + end, pieces.list.back().data);
    }
    const SaveResult saved = save_checkpoint(world, request_of(dir, step, 2, pieces));
    if (rank == 0) folder = saved.folder;
  });
  return folder;
}

json diff(const fs::path& a, const fs::path& b, int status) {
  std::ostringstream out, text;
  EXPECT_EQ(run_checkpoint_diff(a, b, true, out), status);
  EXPECT_EQ(run_checkpoint_diff(a, b, false, text), status);
  json all = json::parse(out.str());
  for (const json& t : all["tensors"])
    EXPECT_NE(text.str().find(t["path"].get<std::string>()), std::string::npos);
  return all;
}

TEST(Diff, EqualStatesOfDifferentGridsAreEqual) {
  TestFolder folder;
  const fs::path a = save_state(folder / "a", 3, 4, 5, 1), b = save_state(folder / "b", 9, 3, 5, 2);
  const json j = diff(a, b, 0);
  EXPECT_TRUE(j["equal"]);
  EXPECT_EQ(j["tensors"].size(), small_model().size());
  EXPECT_EQ(diff(folder / "a", folder / "b", 0)["b"]["step"], 9);
  EXPECT_FALSE(diff(a, save_state(folder / "c", 3, 4, 6, 1), 1)["equal"]);
}

TEST(Diff, TellsHowMuchEachTensorDiffers) {
  TestFolder folder;
  const std::vector<float> x{3, 4, 0, 0, -1, 2, 7}, one{1};
  std::vector<float> y = x, z = x;
  y[0] = 3.5;
  y[5] = 1.0;
  z[2] = -0.0F;  // another pattern of bits, the same number
  const fs::path a = save_vectors(folder / "a", 1,
                                  {{"same", x}, {"moved", x}, {"sign", x}, {"short", x}, {"gone", one}}),
                 b = save_vectors(folder / "b", 2,
                                  {{"same", x}, {"moved", y}, {"sign", z}, {"short", one}, {"new", one}});
  std::map<std::string, json> tensors;
  const json all = diff(a, b, 1);
  for (const json& t : all["tensors"]) tensors[t["path"]] = t;
  EXPECT_TRUE(tensors["model/same"]["equal"]);
  EXPECT_EQ(tensors["model/moved"]["different"], 2);
  EXPECT_EQ(tensors["model/moved"]["elements"], 7);
  EXPECT_EQ(tensors["model/moved"]["largest"], 1.0);
  EXPECT_DOUBLE_EQ(tensors["model/moved"]["relative"], std::sqrt(1.25) / std::sqrt(79.0));
  EXPECT_EQ(tensors["model/sign"]["different"], 1);
  EXPECT_EQ(tensors["model/sign"]["largest"], 0.0);
  EXPECT_NE(tensors["model/short"]["problem"].get<std::string>().find("against"), std::string::npos);
  EXPECT_NE(tensors["model/gone"]["problem"].get<std::string>().find((folder / "a").string()),
            std::string::npos);
  EXPECT_NE(tensors["model/new"]["problem"].get<std::string>().find((folder / "b").string()),
            std::string::npos);
}

TEST(Diff, DoesNotTrustDamagedData) {
  TestFolder folder;
  const fs::path a = save_state(folder / "a", 3, 2, 5), b = save_state(folder / "b", 3, 2, 6);
  const CheckpointInfo info = read_manifest(b);
  std::fstream file(b / info.files[1].name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(info.files[1].boxes[0].byte_offset);
  file.put('x');
  file.close();
  std::ostringstream out;
  EXPECT_THROW(run_checkpoint_diff(a, b, false, out), DamagedCheckpoint);
  EXPECT_THROW(run_checkpoint_diff(b, a, false, out), DamagedCheckpoint);
}

TEST(Inspect, StatisticsOfATensorAndOfAllThatAParameterHas) {
  TestFolder folder;
  std::vector<float> x(300000, 1);  // more than is read at a time
  x[0] = -3, x[7] = 0, x[299999] = 5, x[12] = std::nanf(""), x[13] = INFINITY;
  const fs::path saved = save_vectors(folder.path(), 1, {{"w", x}});
  std::ostringstream out, text;
  EXPECT_EQ(run_checkpoint_statistics(saved, "w", true, out), 0);
  const json s = json::parse(out.str())[0];
  EXPECT_EQ(s["path"], "model/w");
  EXPECT_EQ(s["smallest"], -3);
  EXPECT_EQ(s["largest"], 5);
  EXPECT_EQ(s["zeros"], 1);
  EXPECT_EQ(s["not_finite"], 2);
  EXPECT_DOUBLE_EQ(s["mean"], (299995.0 - 3 + 5) / 299998);
  EXPECT_DOUBLE_EQ(s["norm"], std::sqrt(299995.0 + 9 + 25));
  EXPECT_EQ(run_checkpoint_statistics(folder.path(), "model/w", false, text), 0);
  EXPECT_NE(text.str().find("not finite  2"), std::string::npos) << text.str();
  EXPECT_THROW(run_checkpoint_statistics(saved, "v", false, text), Error);

  std::ostringstream three;
  EXPECT_EQ(run_checkpoint_statistics(save_state(folder / "x", 1, 3, 4), "final_norm.weight", true, three),
            0);
  EXPECT_EQ(json::parse(three.str()).size(), 3U);
}

std::vector<std::string> folders_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Prune, KeepsTheNewestCompleteOnesAndWhatIsNotItsOwn) {
  TestFolder folder;
  const fs::path dir = folder / "run" / "checkpoints";
  for (int64_t step : {1, 2, 3, 4, 5}) save_state(dir, step, 2, 1);
  fs::remove(dir / "step-00000004" / "manifest.json");  // damaged
  fs::create_directory(dir / ".tmp-step-00000006-dead");
  std::ostringstream dry, out;
  EXPECT_EQ(run_checkpoint_prune(folder / "run", 2, true, true, dry), 0);
  EXPECT_EQ(json::parse(dry.str())["removed"], (json{"step-00000002", "step-00000001"}));
  EXPECT_EQ(folders_in(dir).size(), 6U) << "a dry run deletes nothing";
  EXPECT_EQ(run_checkpoint_prune(dir, 2, false, true, out), 0);
  EXPECT_EQ(json::parse(out.str())["removed"], json::parse(dry.str())["removed"]);
  EXPECT_EQ(folders_in(dir), (std::vector<std::string>{"step-00000003", "step-00000004", "step-00000005"}));
  EXPECT_EQ(run_checkpoint_prune(dir, 1, false, false, out), 0);
  EXPECT_EQ(folders_in(dir), (std::vector<std::string>{"step-00000004", "step-00000005"}));
  EXPECT_THROW(run_checkpoint_prune(dir / "step-00000005", 1, false, false, out), Error);
}

// The last good one stays, however new the damaged ones are.
TEST(Prune, ReadsWhatItKeeps) {
  TestFolder folder;
  for (int64_t step : {1, 2, 3}) save_state(folder / "run", step, 2, 1);
  const fs::path shard = folder / "run" / "step-00000003" / "shard-00001-of-00002.h5";
  std::string bytes = read_text(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(shard, bytes);
  std::ostringstream out;
  EXPECT_EQ(run_checkpoint_prune(folder / "run", 1, false, false, out), 1);
  EXPECT_EQ(folders_in(folder / "run"), (std::vector<std::string>{"step-00000002", "step-00000003"}));
  EXPECT_NE(out.str().find("shard-00001-of-00002.h5 is damaged"), std::string::npos) << out.str();
}

TEST(Prune, StaysInTheFolderItWasGiven) {
  TestFolder folder;
  for (int64_t step : {1, 2}) save_state(folder / "run", step, 2, 1);
  fs::remove(folder / "run" / "step-00000002" / "manifest.json");
  std::ostringstream out;
  EXPECT_THROW(run_checkpoint_prune(folder / "run" / "step-00000002", 1, false, false, out), Error);
  save_state(folder / "step-study" / "checkpoints", 1, 2, 1);
  save_state(folder / "step-study" / "checkpoints", 2, 2, 1);
  EXPECT_EQ(run_checkpoint_prune(folder / "step-study", 1, false, false, out), 0);
  EXPECT_EQ(folders_in(folder / "step-study" / "checkpoints"), (std::vector<std::string>{"step-00000002"}));
}

TEST(Merge, LeavesLatestWithTheNewest) {
  TestFolder folder;
  save_state(folder / "run", 30, 2, 1);
  save_state(folder / "old", 10, 2, 1);
  std::ostringstream out;
  EXPECT_EQ(run_checkpoint_merge(folder / "old", folder / "run", false, out), 0);
  EXPECT_EQ(read_text(folder / "run" / "latest"), "step-00000030\n");
}

TEST(Merge, OneShardHoldsTheSameState) {
  TestFolder folder;
  const fs::path source = save_state(folder / "run", 12, 5, 7);
  std::ostringstream out;
  EXPECT_EQ(run_checkpoint_merge(folder / "run", folder / "moved", true, out), 0);
  const fs::path merged = folder / "moved" / "step-00000012";
  EXPECT_EQ(json::parse(out.str())["folder"], merged.string());
  fs::remove_all(folder / "run");
  EXPECT_TRUE(verify_checkpoint(merged).problems.empty());
  const CheckpointInfo info = read_manifest(merged);
  ASSERT_EQ(info.files.size(), 2U);
  EXPECT_EQ(info.files[0].boxes.size(), info.tensors.size());
  EXPECT_EQ(info.consumed_samples, 384);
  EXPECT_EQ(info.extra.at("loss"), 2.5);
  EXPECT_EQ(info.grid.at("ranks"), 5);
  EXPECT_EQ(load_and_compare(merged, 4, 7), 0);
  EXPECT_THROW(run_checkpoint_merge(merged, folder / "moved", false, out), Error)
      << "it would replace itself";
  EXPECT_EQ(load_and_compare(merged, 4, 7), 0);
}

TEST(Merge, DoesNotPassDamageOn) {
  TestFolder folder;
  const fs::path source = save_state(folder / "run", 12, 2, 7);
  const CheckpointInfo info = read_manifest(source);
  std::fstream file(source / info.files[1].name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(info.files[1].boxes.back().byte_offset);
  file.put('x');
  file.close();
  std::ostringstream out;
  EXPECT_THROW(run_checkpoint_merge(source, folder / "moved", false, out), Error);
  EXPECT_TRUE(fs::is_empty(folder / "moved"));
}

TEST(SetAside, WhatARunLeavesBehindIsNeitherFoundNorDeleted) {
  TestFolder folder;
  const fs::path& dir = folder.path();
  for (int64_t step : {2, 4, 6}) save_state(dir, step, 1, static_cast<uint64_t>(step));
  EXPECT_EQ(set_aside(dir, 3),
            (std::vector<std::string>{"abandoned-step-00000006", "abandoned-step-00000004"}));
  EXPECT_EQ(read_file(dir / "latest"), "step-00000002\n");
  EXPECT_EQ(find_checkpoint(dir).info->step, 2);
  save_state(dir, 4, 1, 40, 1, 1);  // keeps one
  EXPECT_EQ(set_aside(dir, 3), (std::vector<std::string>{"abandoned-step-00000004-2"}));
  EXPECT_EQ(load_and_compare(dir / "abandoned-step-00000004", 2, 4), 0);
  EXPECT_EQ(load_and_compare(dir / "abandoned-step-00000004-2", 2, 40), 0);
  EXPECT_FALSE(fs::exists(dir / "latest"));
  EXPECT_TRUE(set_aside(dir, 0).empty());
}

}  // namespace
}  // namespace triax::test
