#include "launch/slurm.h"

#include "core/error.h"
#include "core/shell.h"
#include "engine/cluster.h"
#include "engine/job.h"

namespace triax {

namespace {

int divided_up(int a, int b) {
  return (a + b - 1) / b;
}

}  // namespace

SlurmShape slurm_shape(const SlurmOptions& options, const RunConfig& config, bool elastic) {
  const int ranks = world_size(config);
  SlurmShape shape;
  shape.nodes = options.nodes > 0            ? options.nodes
                : options.ranks_per_node > 0 ? divided_up(ranks, options.ranks_per_node)
                                             : 1;
  shape.ranks_per_node = options.ranks_per_node > 0 ? options.ranks_per_node : ranks / shape.nodes;
  if (shape.ranks_per_node < 1 || shape.nodes * shape.ranks_per_node != ranks)
    fail_usage(
        "{} ranks are not {} nodes of {} ranks; --nodes can be a divisor of the ranks, with --ranks-per-node "
        "ranks / nodes",
        ranks, shape.nodes, shape.ranks_per_node);
  if (shape.nodes > 1) check_tensor_within_node(config, shape.ranks_per_node);
  const int replica = config.parallel.tensor * config.parallel.pipeline;
  shape.least_nodes = elastic ? divided_up(replica, shape.ranks_per_node) : shape.nodes;
  return shape;
}

std::string batch_script(const SlurmOptions& options, const SlurmShape& shape, const std::string& name,
                         const std::string& folder, const std::vector<std::string>& line) {
  std::string script = "#!/bin/bash\n# Written by `triax launch --slurm`.\n";
  const auto ask = [&](const std::string& what) { script += fmt::format("#SBATCH {}\n", what); };
  ask("--job-name=" + shell_word(name));
  ask(shape.least_nodes < shape.nodes ? fmt::format("--nodes={}-{}", shape.least_nodes, shape.nodes)
                                      : fmt::format("--nodes={}", shape.nodes));
  ask(fmt::format("--ntasks-per-node={}", shape.ranks_per_node));
  if (options.cpus_per_task > 0) ask(fmt::format("--cpus-per-task={}", options.cpus_per_task));
  if (!options.time.empty()) ask("--time=" + options.time);
  if (!options.partition.empty()) ask("--partition=" + options.partition);
  if (!options.account.empty()) ask("--account=" + options.account);
  ask("--output=" + shell_word(folder + "/slurm-%j.out"));
  ask("--open-mode=append");
  ask("--requeue");
  // To the batch shell alone, which becomes the launcher: that one asks the ranks.
  ask(fmt::format("--signal=B:USR1@{}", options.stop_before));
  for (const std::string& more : options.sbatch_args) ask(more);
  script += "\nexec";
  for (const std::string& word : line) script += fmt::format(" {}", shell_word(word));
  return script + "\n";
}

}  // namespace triax
