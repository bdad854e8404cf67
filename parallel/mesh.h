#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_link.h"
#include "parallel/grid.h"

namespace triax {

/// What a model needs of a mesh beyond the axes themselves.
struct MeshNeeds {
  int tensor_copies = 1;  ///< adjacent tensor ranks that hold copies of the same key and value heads
  bool tied = false;      ///< the first and the last stage share a weight
  int zero_shards = 0;    ///< consecutive data ranks that share one optimizer state; 0: the data degree
  bool sums = false;      ///< all ranks add up tensors of a device's memory: sums()
  bool around = false;    ///< stages have several chunks: the last one and the first exchange messages, too
  bool backward = true;   ///< pp_backward() has messages: gradients
  DeviceMessages messages{};  ///< how groups send what lies on a device; Mesh knows the routes
};

/// One rank's place in the grid and its communicators, one per set of axes that is needed, built in the same
/// order on all ranks. Handed in by reference; owns the communicators.
class Mesh {
 public:
  /// Collective over `world`, which must outlive the mesh and have the grid's size. With `memory` (whose
  /// device must outlive it, too) tensors of all groups but the world lie in that device's memory; those of
  /// the world always in the host's.
  Mesh(Grid grid, Communicator& world, const MeshNeeds& needs, const DeviceMemory& memory = {});
  /// The mesh of `rank` for planning: communicators that record and move nothing.
  static Mesh planned(Grid grid, int rank, const MeshNeeds& needs);

  const Grid& grid() const { return grid_; }
  int rank() const { return rank_; }
  int coordinate(std::string_view axis) const { return grid_.coordinate(rank_, axis); }
  int size(std::string_view axis) const { return grid_.size(axis); }
  bool first_stage() const { return coordinate("pp") == 0; }
  bool last_stage() const { return coordinate("pp") == size("pp") - 1; }

  Communicator& world() { return *world_; }
  /// All ranks, with tensors where those of the other groups are; without MeshNeeds::sums the world itself.
  Communicator& sums() { return sums_ ? *sums_ : *world_; }
  Communicator& tp() { return *tp_; }
  Communicator& dp() { return *dp_; }
  /// Consecutive data ranks that share one copy of the optimizer's state, or null when each has all of it.
  Communicator* zero_shard() { return zero_shard_; }
  /// The data ranks that hold the same part of it, in the order of their copies, or null when there is one.
  Communicator* zero_replicas() { return zero_replicas_; }
  /// Messages from stage to stage; each direction has a communicator of its own, so that neither queues
  /// behind the other.
  Communicator& pp_forward() { return *pp_forward_; }
  Communicator& pp_backward() { return *pp_backward_; }
  /// Tensor ranks with copies of the same key-value heads.
  Communicator& tp_copies() { return *tp_copies_; }
  /// First and last stage, in this order; null on stages between them, with one stage or without a tied
  /// weight.
  Communicator* tied() { return tied_.get(); }

  /// How this rank's groups send what lies on its device, and why so: "dp, tp: NCCL 2.28.9; pp: host memory:
  /// ranks 0 and 1 share a GPU". Empty where nothing needs to be said.
  std::string transports() const;
  /// Of a planned mesh: the members of each of this rank's groups, by the group's name.
  const std::map<std::string, std::vector<int>>& planned_groups() const { return planned_groups_; }

 private:
  using MakeGroup = std::function<std::unique_ptr<Communicator>(
      const std::function<int(int rank)>& color, const std::string& name, const MessageRoute& route)>;
  Mesh(Grid grid, int rank) : grid_(std::move(grid)), rank_(rank) {}
  void make_groups(const MeshNeeds& needs, const MakeGroup& make_group);

  Grid grid_;
  int rank_;
  std::unique_ptr<Communicator> owned_world_;  // planning only
  std::map<std::string, std::vector<int>> planned_groups_;
  Communicator* world_ = nullptr;
  std::unique_ptr<Communicator> dp_shard_, dp_replicas_;  // of a degree between 1 and that of data
  Communicator *zero_shard_ = nullptr, *zero_replicas_ = nullptr;
  std::unique_ptr<Communicator> tp_, dp_, pp_forward_, pp_backward_, tp_copies_, tied_, sums_;
};

}  // namespace triax
