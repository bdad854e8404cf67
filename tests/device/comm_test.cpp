// Groups whose tensors lie in a device's memory, on the foreign device: thread ranks in that memory, and the
// same through the host's, have the bits of the host's groups; a pointer of the wrong side is a fault.

#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "comm/device_link.h"
#include "comm/local_ranks.h"
#include "core/arena.h"
#include "core/bf16.h"
#include "core/error.h"
#include "parallel/backend.h"

namespace triax::test {
namespace {

constexpr int ranks = 4;
constexpr int64_t elements = 4 * 5000;

/// What the operations left on every rank, as bytes.
using Results = std::vector<std::vector<char>>;

enum class Where { host, device, staged };

void take_foreign_library() {
  setenv("TRIAX_CUDA_LIBRARY", (std::string(TRIAX_BINARY_DIR) + "/lib/triax_cuda_foreign.so").c_str(), 1);
}

class GroupsOnADevice : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { take_foreign_library(); }

  // Values that do not add up exactly, other ones on each rank.
  static std::vector<char> values(DType dtype, int rank) {
    std::vector<char> bytes(static_cast<size_t>(elements) * size_of(dtype));
    for (int64_t i = 0; i < elements; ++i) {
      const float x = static_cast<float>((i * 7919 + rank * 104729) % 1000003) * 1.7e-3F - 800;
      if (dtype == DType::f32)
        reinterpret_cast<float*>(bytes.data())[i] = x;
      else if (dtype == DType::bf16)
        reinterpret_cast<bf16*>(bytes.data())[i] = round_bf16(x);
      else
        reinterpret_cast<int64_t*>(bytes.data())[i] = static_cast<int64_t>(x * 1e6F);
    }
    return bytes;
  }

  // All operations one after the other on one buffer, in place and not.
  static Results run(DType dtype, Where where) {
    Results results(ranks);
    std::mutex mutex;
    CommOptions options;
    options.timeout = std::chrono::seconds(30);
    run_local_ranks(ranks, options, [&](Communicator& world, int rank) {
      const Backend backend = make_backend(where == Where::host ? "cpu" : "cuda", 1, rank);
      Device& device = *backend.device;
      auto group = on_device(world.split(0, "group"),
                             where == Where::staged ? DeviceMemory{&device, nullptr} : backend.memory());
      Arena arena("tensors", device);
      const int a = arena.declare("a", {elements}, dtype), b = arena.declare("b", {elements}, dtype),
                c = arena.declare("c", {elements * ranks}, dtype);
      arena.commit();
      const Tensor x = arena[a], y = arena[b], all = arena[c];
      const std::vector<char> mine = values(dtype, rank);
      std::vector<char> left;
      const auto keep = [&](const Tensor& t) {
        const size_t at = left.size();
        left.resize(at + t.bytes());
        device.read(left.data() + at, t.raw(), t.bytes());
      };
      device.write(x.raw(), mine.data(), mine.size());
      group->all_reduce(x, y, ReduceOp::sum).wait();
      keep(y);
      if (dtype != DType::bf16) {
        device.write(y.raw(), mine.data(), mine.size());
        group->all_reduce(y, y, ReduceOp::max).wait();
        keep(y);
      }
      Pending gathering = group->all_gather(x, all);
      const Tensor quarter = y.rows(0, elements / ranks);
      group->reduce_scatter(x, quarter, ReduceOp::sum).wait();
      keep(quarter);
      gathering.wait();
      keep(all);
      // In place: the own part of a whole.
      const Tensor part = x.rows(rank * (elements / ranks), elements / ranks);
      group->reduce_scatter(x, part, ReduceOp::sum).wait();
      keep(part);
      group->all_gather(part, x).wait();
      keep(x);
      group->broadcast(x, 2).wait();
      keep(x);
      // Around the ring, receives posted before and after the sends.
      const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      if (rank % 2) {
        Pending sent = group->send(x, next);
        group->recv(y, before).wait();
        sent.wait();
      } else {
        group->recv(y, before).wait();
        group->send(x, next).wait();
      }
      keep(y);
      {
        const Communicator::HostTensors on_host(*group);
        int64_t number = rank;
        group->all_reduce(Tensor::of(&number, {1}), Tensor::of(&number, {1}), ReduceOp::sum).wait();
        EXPECT_EQ(number, 6);
      }
      const std::lock_guard lock(mutex);
      results[static_cast<size_t>(rank)] = std::move(left);
    });
    return results;
  }
};

TEST_P(GroupsOnADevice, HaveTheBitsOfTheHosts) {
  const Results host = run(GetParam(), Where::host);
  EXPECT_GT(host[0].size(), 0U);
  EXPECT_TRUE(run(GetParam(), Where::device) == host);
}

TEST_P(GroupsOnADevice, HaveTheBitsOfTheHostsWhenStaged) {
  EXPECT_TRUE(run(GetParam(), Where::staged) == run(GetParam(), Where::host));
}

TEST(ForeignDevice, PointersOfTheWrongSideAreFaults) {
  take_foreign_library();
  const Backend backend = make_backend("cuda", 1, 0);
  Device& device = *backend.device;
  void* there = device.allocate(64, "a test");
  char here[64] = {};
  EXPECT_THROW(device.copy(there, here, 64), Error);
  EXPECT_THROW(device.write(here, here, 64), Error);
  EXPECT_THROW(device.read(there, there, 64), Error);
  EXPECT_DEATH(static_cast<volatile char*>(there)[0] = 1, "");
  device.deallocate(there, 64);
}

INSTANTIATE_TEST_SUITE_P(, GroupsOnADevice, ::testing::Values(DType::f32, DType::bf16, DType::i64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace triax::test
