#include "bench/collectives.h"

#include <fmt/ostream.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/collective_fit.h"
#include "bench/ranks.h"

namespace triax {

namespace {

struct Operation {
  const char* name;
  double rounds_per_rank;  ///< of the ring model
};
constexpr Operation operations[] = {{"all_reduce", 2}, {"all_gather", 1}, {"reduce_scatter", 1}};

// One call on `count` floats in all; `part` is a rank's share of them.
void call(Communicator& group, const std::string& name, std::vector<float>& whole, std::vector<float>& part,
          int64_t count) {
  const Tensor all = Tensor::of(whole.data(), Shape{count});
  const Tensor mine = Tensor::of(part.data(), Shape{count / group.size()});
  if (name == "all_reduce")
    group.all_reduce(all, all, ReduceOp::max).wait();  // a maximum stays finite however often it is repeated
  else if (name == "all_gather")
    group.all_gather(mine, all).wait();
  else
    group.reduce_scatter(all, mine, ReduceOp::max).wait();
}

// There and back between the group's first two ranks: one way is half of it.
void exchange(Communicator& group, std::vector<float>& whole, int64_t count) {
  const Tensor message = Tensor::of(whole.data(), Shape{count});
  if (group.rank() == 0) {
    group.send(message, 1).wait();
    group.recv(message, 1).wait();
  } else {
    group.recv(message, 0).wait();
    group.send(message, 0).wait();
  }
}

std::set<int> group_sizes(int ranks) {
  std::set<int> sizes{ranks};
  for (int n = 2; n < ranks; n *= 2) sizes.insert(n);
  return sizes;
}

using Measured = std::map<std::string, std::vector<CollectiveTime>>;

void measure_group(Communicator& group, const CollectivesOptions& options, Measured& measured) {
  const int n = group.size();
  std::vector<float> whole, part;
  for (int64_t bytes = 8; bytes <= options.max_bytes; bytes *= 8) {
    const int64_t count = (bytes / 4 + n - 1) / n * n;  // each rank has an equal part
    whole.resize(static_cast<size_t>(count));
    part.resize(static_cast<size_t>(count / n));
    for (const Operation& op : operations)
      measured[op.name].push_back({n, 4 * count, best_seconds_together(group, options.seconds, [&] {
                                     call(group, op.name, whole, part, count);
                                   })});
    if (n == 2)
      measured["send_recv"].push_back({2, 2 * 4 * count, best_seconds_together(group, options.seconds, [&] {
                                                           exchange(group, whole, count);
                                                         }) / 2});
  }
}

double rounds_of(const std::string& name) {
  for (const Operation& op : operations)
    if (name == op.name) return op.rounds_per_rank;
  return 1;  // one message; its bytes are entered doubled, since the model sends S/n
}

void print_table(std::ostream& out, const Measured& measured) {
  fmt::print(out, "{:<15} {:>6} {:>14} {:>12} {:>12} {:>8}\n", "operation", "ranks", "bytes", "us", "fit us",
             "GB/s");
  for (const auto& [name, times] : measured) {
    const AlphaBeta fit = fit_alpha_beta(times, rounds_of(name));
    const bool message = name == "send_recv";
    for (const CollectiveTime& t : times) {
      const int64_t bytes = message ? t.bytes / 2 : t.bytes;
      fmt::print(out, "{:<15} {:>6} {:>14} {:>12.1f} {:>12.1f} {:>8.2f}\n", name, t.ranks, bytes,
                 t.seconds * 1e6, fit.seconds(rounds_of(name) * (t.ranks - 1), t.ranks, t.bytes) * 1e6,
                 static_cast<double>(bytes) / t.seconds / 1e9);
    }
    fmt::print(
        out, "{:<15} alpha {:.2f} us, bandwidth {:.2f} GB/s; the fit is off by a factor of {:.1f} at most\n",
        name, fit.alpha * 1e6, fit.bandwidth / 1e9, fit.worst_factor);
  }
}

nlohmann::json to_json(const Measured& measured) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, times] : measured) {
    const AlphaBeta fit = fit_alpha_beta(times, rounds_of(name));
    nlohmann::json points = nlohmann::json::array();
    for (const CollectiveTime& t : times)
      points.push_back({{"ranks", t.ranks},
                        {"bytes", name == "send_recv" ? t.bytes / 2 : t.bytes},
                        {"seconds", t.seconds}});
    all[name] = {{"alpha", fit.alpha},
                 {"bandwidth", fit.bandwidth},
                 {"worst_factor", fit.worst_factor},
                 {"points", points}};
  }
  return all;
}

}  // namespace

void bench_collectives(std::ostream& out, const CollectivesOptions& options) {
  run_bench_ranks(options.ranks, [&](Communicator& world) {
    if (world.size() < 2) fail_usage("collectives want at least two ranks: --ranks N, or mpirun -n N");
    Measured measured;
    for (const int n : group_sizes(world.size())) {
      const auto group = world.split(world.rank() < n ? 0 : -1, "bench");
      if (group) measure_group(*group, options, measured);
      world.barrier();
    }
    if (world.rank() != 0) return;
    if (options.json) {
      out << to_json(measured).dump(2) << "\n";
      return;
    }
    fmt::print(
        out,
        "{} ranks; model: all_reduce 2(n-1)(alpha + S/(nB)), all_gather and reduce_scatter half of it,\n"
        "send_recv alpha + S/B; shortest of repeated runs, longest over ranks\n",
        world.size());
    print_table(out, measured);
  });
}

}  // namespace triax
