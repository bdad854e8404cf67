// Arena and scratch: placement, zeroed memory, and what is said when something is wrong.
#include <gtest/gtest.h>

#include <string>

#include "core/arena.h"
#include "core/scratch.h"

namespace triax {
namespace {

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Placement, TensorsAreAlignedAndDoNotOverlap) {
  Placement placement;
  placement.add("a", {3}, DType::f32);
  placement.add("b", {65}, DType::f32);
  placement.add("empty", {0}, DType::f32);
  placement.add("c", {2, 2}, DType::bf16);
  const auto& e = placement.entries();
  EXPECT_EQ(e[0].offset, 0u);
  EXPECT_EQ(e[1].offset, 256u);
  EXPECT_EQ(e[1].bytes, 260u);
  EXPECT_EQ(e[3].offset, 256u + 512u);
  EXPECT_EQ(placement.bytes(), 256u + 512u + 256u);
}

TEST(Placement, FillsWhatIsLentAndThenItsOwnBlock) {
  Placement placement;
  placement.add("own", {64}, DType::f32);
  placement.lend(100, 256 + 512);
  placement.add("too large", {129}, DType::f32);
  placement.add("first", {64}, DType::f32);
  placement.add("fits", {1}, DType::f32);
  placement.add("no room", {65}, DType::f32);
  placement.lend(0, 2048);
  placement.add("behind", {65}, DType::f32);
  placement.lend(0, 0);
  placement.add("nothing is lent", {1}, DType::f32);
  const auto& e = placement.entries();
  const bool lent[] = {false, false, true, true, false, true, false};
  const size_t offset[] = {0, 256, 256, 512, 1024, 768, 1536};
  for (size_t i = 0; i < e.size(); ++i) {
    EXPECT_EQ(e[i].lent, lent[i]) << e[i].name;
    EXPECT_EQ(e[i].offset, offset[i]) << e[i].name;
  }
  EXPECT_EQ(placement.bytes(), 1536U + 256);
  EXPECT_EQ(placement.lent_bytes(), 256U + 256 + 512);
  char own[4096], other[4096];
  EXPECT_EQ(placement.at(own, 0, other).raw(), own);
  EXPECT_EQ(placement.at(own, 5, other).raw(), other + 768);
}

TEST(Arena, GivesZeroedTensorsOfTheDeclaredShapes) {
  const auto device = make_cpu_device(1);
  Arena arena("weights", *device);
  const int a = arena.declare("a", {2, 3}, DType::f32), b = arena.declare("b", {5}, DType::i32);
  arena.commit();
  EXPECT_EQ(arena.bytes(), 512u);
  EXPECT_EQ(arena[a].shape(), (Shape{2, 3}));
  EXPECT_EQ(arena[b].dtype(), DType::i32);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(arena[a].f32()[i], 0.0F);
    arena[a].f32()[i] = 1.0F;
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(arena[b].i32()[i], 0);
}

TEST(Arena, TellsWhatIsWrong) {
  const auto device = make_cpu_device(1);
  Arena arena("weights", *device);
  const int a = arena.declare("a", {4}, DType::f32);
  EXPECT_NE(message_of([&] { arena[a]; }).find("arena weights was used before it was committed"),
            std::string::npos);
  arena.commit();
  EXPECT_NE(message_of([&] {
              arena.declare("late", {1}, DType::f32);
            }).find("arena weights: late was declared after the arena was committed"),
            std::string::npos);
  EXPECT_NE(message_of([&] { arena.commit(); }).find("committed twice"), std::string::npos);
}

TEST(Arena, ExhaustionNamesTheArenaAndItsLargestTensor) {
  const auto device = make_cpu_device(1);
  Arena arena("activations", *device);
  arena.declare("small", {16}, DType::f32);
  arena.declare("layers.0.mlp.u", {int64_t{1} << 24, int64_t{1} << 24}, DType::f32);
  const std::string text = message_of([&] { arena.commit(); });
  for (const char* part : {"activations", "layers.0.mlp.u", "16777216 x 16777216", "bytes"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Scratch, FramesGiveBackAndTheHighWaterMarkStays) {
  const auto device = make_cpu_device(1);
  Scratch scratch(*device);
  scratch.commit(1024);
  void* first = nullptr;
  {
    Scratch::Frame frame(scratch);
    first = frame.take("x", {64}).raw();  // 256 bytes
    {
      Scratch::Frame inner(scratch);
      EXPECT_EQ(inner.take("y", {1}).raw(), static_cast<char*>(first) + 256);
    }
    EXPECT_EQ(frame.take("z", {1}).raw(), static_cast<char*>(first) + 256);
  }
  EXPECT_EQ(scratch.high_water(), 512u);
  Scratch::Frame frame(scratch);
  EXPECT_EQ(frame.take("x", {64}).raw(), first);
}

TEST(Scratch, ExhaustionNamesTheTensorAndWhatIsInUse) {
  const auto device = make_cpu_device(1);
  Scratch scratch(*device);
  scratch.commit(1024);
  Scratch::Frame frame(scratch);
  frame.take("logits", {128});
  const std::string text = message_of([&] { frame.take("probabilities", {2, 100}); });
  for (const char* part : {"probabilities", "2 x 100", "1024 bytes", "512 of 1024"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Scratch, PlansWithoutMemory) {
  const auto device = make_null_device();
  Scratch scratch(*device);
  scratch.commit(0);
  {
    Scratch::Frame frame(scratch);
    frame.take("huge", {int64_t{1} << 40});
  }
  EXPECT_EQ(scratch.high_water(), size_t{4} << 40);
}

}  // namespace
}  // namespace triax
