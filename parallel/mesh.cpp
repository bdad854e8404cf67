#include "parallel/mesh.h"

#include <algorithm>
#include <numeric>

#include "comm/recorder.h"
#include "core/error.h"

namespace triax {

namespace {

// Ranks that agree on all axes but `axes` get the color of the smallest among them.
std::function<int(int)> color_of(const Grid& grid, std::vector<std::string_view> axes) {
  return [&grid, axes = std::move(axes)](int rank) {
    for (std::string_view axis : axes) rank = grid.with(rank, axis, 0);
    return rank;
  };
}

}  // namespace

void Mesh::make_groups(const MeshNeeds& needs, const MakeGroup& make_group) {
  const auto make = [&](const std::function<int(int)>& color, const std::string& name,
                        const MessageRoute& route = {}) { return make_group(color, name, route); };
  tp_ = make(color_of(grid_, {"tp"}), "tp");
  dp_ = make(color_of(grid_, {"dp"}), "dp");
  const int data = size("dp"), shards = needs.zero_shards ? needs.zero_shards : data;
  check(data % shards == 0, "{} data ranks can't be cut into groups of {}", data, shards);
  if (shards > 1 && shards < data) {
    // A group is named by its first member.
    dp_shard_ = make(
        [&](int rank) {
          const int place = grid_.coordinate(rank, "dp");
          return grid_.with(rank, "dp", place - place % shards);
        },
        "dp-shard");
    dp_replicas_ =
        make([&](int rank) { return grid_.with(rank, "dp", grid_.coordinate(rank, "dp") % shards); },
             "dp-replicas");
  }
  if (shards > 1) zero_shard_ = shards == data ? dp_.get() : dp_shard_.get();
  if (shards < data) zero_replicas_ = shards == 1 ? dp_.get() : dp_replicas_.get();
  pp_forward_ = make(color_of(grid_, {"pp"}), "pp", {1, needs.around});
  pp_backward_ = make(color_of(grid_, {"pp"}), "pp-back", {needs.backward ? -1 : 0, needs.around});
  tp_copies_ =
      make([&](int rank) { return rank - grid_.coordinate(rank, "tp") % needs.tensor_copies; }, "tp-copies");
  if (needs.tied && size("pp") > 1) {
    tied_ = make(
        [&](int rank) {
          const int stage = grid_.coordinate(rank, "pp");
          return stage == 0 || stage == size("pp") - 1 ? grid_.with(rank, "pp", 0) : -1;
        },
        "tied");
  }
  if (needs.sums) sums_ = make([](int) { return 0; }, "sums");
}

Mesh::Mesh(Grid grid, Communicator& world, const MeshNeeds& needs, const DeviceMemory& memory)
    : Mesh(std::move(grid), world.rank()) {
  check(world.size() == grid_.size(), "the grid {} does not have the world's {} ranks", to_string(grid_),
        world.size());
  world_ = &world;
  make_groups(needs,
              [&](const std::function<int(int)>& color, const std::string& name, const MessageRoute& route) {
                auto group = world.split(color(rank_), name);
                DeviceMessages messages = needs.messages;
                messages.route = route;
                return memory.device ? on_device(std::move(group), memory, messages) : std::move(group);
              });
}

std::string Mesh::transports() const {
  std::map<std::string, std::string> groups;  // by transport
  for (const auto* group :
       {&tp_, &dp_, &dp_shard_, &dp_replicas_, &pp_forward_, &pp_backward_, &tp_copies_, &tied_, &sums_})
    if (*group && !(*group)->transport().empty()) {
      std::string& names = groups[(*group)->transport()];
      names += (names.empty() ? "" : ", ") + (*group)->name();
    }
  std::string text;
  for (const auto& [transport, names] : groups) text += (text.empty() ? "" : "; ") + names + ": " + transport;
  return text;
}

Mesh Mesh::planned(Grid grid, int rank, const MeshNeeds& needs) {
  Mesh mesh(std::move(grid), rank);
  const CommOptions options;
  mesh.owned_world_ = make_null_communicator(rank, mesh.grid_.size(), options, "world", nullptr);
  mesh.world_ = mesh.owned_world_.get();
  auto recorder = mesh.world_->shared_recorder();
  mesh.make_groups(needs,
                   [&](const std::function<int(int)>& color, const std::string& name,
                       const MessageRoute&) -> std::unique_ptr<Communicator> {
                     const int mine = color(rank);
                     if (mine < 0) return nullptr;
                     std::vector<int> members;
                     for (int r = 0; r < mesh.grid_.size(); ++r)
                       if (color(r) == mine) members.push_back(r);
                     const auto place = std::find(members.begin(), members.end(), rank);
                     const int index = static_cast<int>(place - members.begin()),
                               size = static_cast<int>(members.size());
                     mesh.planned_groups_[name] = std::move(members);
                     return make_null_communicator(index, size, options, name, recorder);
                   });
  return mesh;
}

}  // namespace triax
