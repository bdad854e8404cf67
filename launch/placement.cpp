#include "launch/placement.h"

#include <algorithm>

#include "core/error.h"
#include "engine/cluster.h"
#include "engine/job.h"

namespace triax {

namespace {

int slots_of(const Host& host, int default_slots) {
  return host.slots > 0 ? host.slots : default_slots;
}

// Slots that whole tensor groups can fill.
int usable(const RunConfig& config, int slots) {
  return config.parallel.allow_tensor_across_nodes ? slots : slots - slots % config.parallel.tensor;
}

// The first tensor group that lies on two hosts when all slots are filled in order.
std::string spread_group(const RunConfig& config, const std::vector<Host>& hosts, int default_slots) {
  const int tensor = config.parallel.tensor;
  int first = 0;
  for (size_t i = 0; i + 1 < hosts.size(); ++i) {
    const int end = first + slots_of(hosts[i], default_slots);
    if (end % tensor != 0) {
      const int group = end - end % tensor;
      // It may need more than two hosts.
      size_t last = i + 1;
      for (int e = end + slots_of(hosts[last], default_slots); e < group + tensor && last + 1 < hosts.size();)
        e += slots_of(hosts[++last], default_slots);
      size_t begin = i;
      for (int f = first; f > group; f -= slots_of(hosts[--begin], default_slots)) {
      }
      return fmt::format("the tensor group of ranks {} .. {} would be spread over {} .. {}", group,
                         group + tensor - 1, hosts[begin].name, hosts[last].name);
    }
    first = end;
  }
  return "";
}

}  // namespace

int RankPlacement::ranks() const {
  int sum = 0;
  for (const Host& host : hosts) sum += host.slots;
  return sum;
}

int RankPlacement::most() const {
  int most = 0;
  for (const Host& host : hosts) most = std::max(most, host.slots);
  return most;
}

bool RankPlacement::uniform() const {
  return std::all_of(hosts.begin(), hosts.end(), [&](const Host& h) { return h.slots == hosts[0].slots; });
}

int capacity(const RunConfig& config, const std::vector<Host>& hosts, int default_slots) {
  int sum = 0;
  for (const Host& host : hosts) sum += usable(config, slots_of(host, default_slots));
  return sum;
}

RankPlacement place(const RunConfig& config, const std::vector<Host>& hosts, int default_slots) {
  const int ranks = world_size(config);
  int left = ranks, all = 0, largest = 0;
  RankPlacement placement;
  for (const Host& host : hosts) {
    const int slots = slots_of(host, default_slots);
    all += slots;
    largest = std::max(largest, slots);
    const int here = std::min(left, usable(config, slots));
    if (here > 0) placement.hosts.push_back({host.name, here});
    left -= here;
  }
  if (left == 0) return placement;
  if (all < ranks)
    fail_usage(
        "the job has {} ranks (tensor {} x pipeline {} x data {}), but the hosts take {} ({}); name more "
        "hosts "
        "or slots, or choose smaller degrees",
        ranks, config.parallel.tensor, config.parallel.pipeline, config.parallel.data, all, to_string(hosts));
  const std::string spread = spread_group(config, hosts, default_slots);
  fail_usage(
      "parallel.tensor: {}: {} ({} ranks in whole tensor groups fit the hosts {}, the job has {}); tensor "
      "can "
      "be {}, slots a multiple of it, or set parallel.allow_tensor_across_nodes: true",
      config.parallel.tensor, spread.empty() ? "a tensor group would be spread over hosts" : spread,
      ranks - left, to_string(hosts), ranks, tensor_sizes_within(config, largest));
}

std::optional<DataDegree> largest_data_degree(const RunConfig& config, int ranks,
                                              const std::function<bool(const DataDegree&)>& legal) {
  const TrainingConfig& t = config.training;
  const int replica = config.parallel.tensor * config.parallel.pipeline;
  for (int data = std::min(config.parallel.data, ranks / replica); data >= 1; --data) {
    if (t.global_batch_size % data != 0) continue;
    const int64_t share = t.global_batch_size / data;
    for (int64_t micro = std::min(t.micro_batch_size, share); micro >= 1; --micro)
      if (share % micro == 0 && legal({data, micro})) return DataDegree{data, micro};
  }
  return std::nullopt;
}

}  // namespace triax
