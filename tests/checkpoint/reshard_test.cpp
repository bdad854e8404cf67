// Saving by N ranks and loading by M, bit by bit.

#include <gtest/gtest.h>

#include "checkpoint/folders.h"
#include "logical_state.h"

namespace triax::test {
namespace {

TEST(Reshard, AnyGridLoadsWhatAnyGridSaved) {
  TestFolder folder;
  uint64_t seed = 1;
  for (int writers : {1, 2, 3, 5, 8})
    for (int readers : {1, 2, 4, 7}) {
      const fs::path saved = save_state(folder.path(), static_cast<int64_t>(seed), writers, seed, seed + 100);
      EXPECT_EQ(load_and_compare(saved, readers, seed, seed + 200), 0) << writers << " to " << readers;
      ++seed;
    }
}

TEST(Reshard, TheComparisonCanFail) {
  TestFolder folder;
  const fs::path saved = save_state(folder.path(), 1, 2, 5);
  EXPECT_GT(load_and_compare(saved, 2, 6), 1000);
}

TEST(Reshard, EveryRankMayAskForOverlappingBoxesOrNothing) {
  TestFolder folder;
  const fs::path saved = save_state(folder.path(), 1, 3, 5);
  std::atomic<int64_t> wrong = 0;
  run_local_ranks(3, {}, [&](Communicator& world, int rank) {
    Pieces pieces;
    if (rank != 1)  // rank 1 needs nothing
      for (const LogicalTensor& t : small_model()) {
        if (t.kind != StateKind::weight) continue;  // weights only
        pieces.add(t, whole(t.shape));
        Box inner = whole(t.shape);
        for (int i = 0; i < t.shape.rank(); ++i) {
          inner.offset[i] = 1;
          inner.extent[i] -= 2;
        }
        pieces.add(t, inner);
      }
    load_checkpoint(world, saved, pieces.list);
    wrong += wrong_elements(pieces, 5);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Reshard, BoxesLargerThanTheBuffersArriveWhole) {
  TestFolder folder;
  const LogicalTensor big{StateKind::weight, "big", {1500, 2001}};  // 12 MB, odd rows
  fs::path saved;
  run_local_ranks(2, {}, [&](Communicator& world, int rank) {
    Pieces pieces;
    for (const Box& b : boxes_of_range(whole(big.shape), rank * 1700003, rank ? 1500 * 2001 : 1700003))
      pieces.add(big, b);
    fill(pieces, 3);
    SaveRequest request;
    request.dir = folder.path();
    request.step = 7;
    request.pieces = pieces.list;
    const SaveResult result = save_checkpoint(world, request);
    EXPECT_EQ(result.folder.filename(), "step-00000007");
    EXPECT_GT(result.bytes, 12000000);
    if (rank == 0) saved = result.folder;
  });
  run_local_ranks(3, {}, [&](Communicator& world, int rank) {
    Pieces pieces;  // columns
    pieces.add(big, {{0, 667 * rank}, {1500, 667}});
    load_checkpoint(world, saved, pieces.list);
    EXPECT_EQ(wrong_elements(pieces, 3), 0);
  });
}

TEST(Reshard, ManifestSaysWhatWasSaved) {
  TestFolder folder;
  const fs::path a = save_state(folder.path() / "a", 12, 4, 5, 1),
                 b = save_state(folder.path() / "b", 12, 3, 5, 2);
  const CheckpointInfo info = read_manifest(a), other = read_manifest(b);
  EXPECT_EQ(info.step, 12);
  EXPECT_EQ(info.consumed_samples, 384);
  EXPECT_EQ(info.config, "name: test\n");
  EXPECT_EQ(info.grid.at("ranks"), 4);
  EXPECT_EQ(info.extra.at("loss"), 2.5);
  EXPECT_EQ(info.files.size(), 5u);
  EXPECT_NE(info.id, other.id);
  ASSERT_EQ(info.tensors.size(), other.tensors.size());
  for (size_t i = 0; i < info.tensors.size(); ++i) {  // the same state has the same hashes on every grid
    EXPECT_EQ(info.tensors[i].path(), other.tensors[i].path());
    EXPECT_EQ(info.tensors[i].hash, other.tensors[i].hash);
  }
  EXPECT_EQ(info.tensors[0].name, "embed.tokens.weight");
  EXPECT_EQ(info.tensors[3].name, "layers.0.attention.q.weight");
  EXPECT_EQ(info.tensors[4].name, "layers.10.mlp.up.weight");
}

// The message of an Error thrown by body; empty without one.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string save_error(const std::vector<std::vector<Box>>& boxes, Shape shape = {4, 6}) {
  TestFolder folder;
  const LogicalTensor t{StateKind::exp_avg, "w", shape};
  std::string error = error_of([&] {
    run_local_ranks(static_cast<int>(boxes.size()), {}, [&](Communicator& world, int rank) {
      Pieces pieces;
      for (const Box& b : boxes[static_cast<size_t>(rank)]) pieces.add(t, b);
      SaveRequest request;
      request.dir = folder.path();
      request.step = 1;
      request.pieces = pieces.list;
      save_checkpoint(world, request);
    });
  });
  EXPECT_TRUE(error.empty() || fs::is_empty(folder.path())) << "a refused save left something behind";
  return error;
}

TEST(Save, RefusesGapsOverlapsAndContradictions) {
  EXPECT_EQ(save_error({{{{0, 0}, {4, 3}}}, {{{0, 3}, {4, 3}}}}), "");
  const std::string gap = save_error({{{{0, 0}, {4, 3}}}, {{{0, 3}, {3, 3}}}});
  EXPECT_NE(gap.find("optimizer/w/exp_avg"), std::string::npos) << gap;
  EXPECT_NE(gap.find("21 of its 24"), std::string::npos) << gap;
  const std::string overlap = save_error({{{{0, 0}, {4, 3}}}, {{{3, 2}, {1, 4}}, {{0, 3}, {3, 3}}}});
  EXPECT_NE(overlap.find("overlaps"), std::string::npos) << overlap;
  EXPECT_NE(overlap.find("[3:4, 2:6]"), std::string::npos) << overlap;
  // As many elements as it should be, but one box twice and one missing.
  EXPECT_NE(save_error({{{{0, 0}, {4, 3}}}, {{{0, 0}, {4, 3}}}}).find("overlaps"), std::string::npos);
  EXPECT_NE(save_error({{{{0, 0}, {4, 6}}}, {{{4, 0}, {1, 6}}}}).find("outside"), std::string::npos);
  EXPECT_NE(save_error({{}, {}}).find("nothing to save"), std::string::npos);
}

TEST(Load, NamesTensorsThatAreMissingOrHaveAnotherShape) {
  TestFolder folder;
  const fs::path saved = save_state(folder.path(), 3, 2, 5);
  auto load = [&](const LogicalTensor& t) {
    return error_of([&] {
      run_local_ranks(2, {}, [&](Communicator& world, int rank) {
        Pieces pieces;
        if (rank == 1) pieces.add(t, whole(t.shape));
        load_checkpoint(world, saved, pieces.list);
      });
    });
  };
  EXPECT_EQ(load({StateKind::weight, "final_norm.weight", {13}}), "");
  const std::string missing = load({StateKind::weight, "lm_head.weight", {37, 12}});
  EXPECT_NE(missing.find("model/lm_head.weight"), std::string::npos) << missing;
  EXPECT_NE(missing.find("rank 1"), std::string::npos) << missing;
  const std::string shape = load({StateKind::weight, "final_norm.weight", {14}});
  EXPECT_NE(shape.find("13"), std::string::npos) << shape;
  EXPECT_NE(shape.find("14"), std::string::npos) << shape;
}

}  // namespace
}  // namespace triax::test
