#include "launch/launch_command.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/shell.h"

namespace triax {

namespace {

class Words {
 public:
  explicit Words(std::string program) : words_{std::move(program)} {}
  Words& add(std::initializer_list<std::string> words) {
    words_.insert(words_.end(), words);
    return *this;
  }
  Words& add(const std::vector<std::string>& words) {
    words_.insert(words_.end(), words.begin(), words.end());
    return *this;
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void add_program(Words& words, const RankProgram& program, const Binding& binding) {
  words.add({program.program, "train"}).add(program.arguments);
  // A bound rank sees its own cores alone, and would divide those among the ranks again.
  if (!program.threads_told) words.add({"--set", fmt::format("training.threads={}", binding.cores_per_rank)});
}

// "KEY VALUE" or "KEY=VALUE".
std::vector<std::string> mca(const std::string& text) {
  const size_t at = text.find_first_of(" =");
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    fail_usage("--mca {}: expected KEY=VALUE, for example --mca btl_tcp_if_include=eth0", text);
  return {"--mca", text.substr(0, at), text.substr(at + 1)};
}

}  // namespace

std::string to_shell(const LaunchCommand& command) {
  std::string line;
  for (const std::string& variable : command.environment) {
    const size_t equals = variable.find('=');
    line += fmt::format("{}={} ", variable.substr(0, equals), shell_word(variable.substr(equals + 1)));
  }
  for (const std::string& word : command.words) {
    if (&word != &command.words.front()) line += ' ';
    line += shell_word(word);
  }
  return line;
}

Binding binding_of(const StartOptions& options, const RankPlacement& placement, const NodeTopology& node) {
  Binding binding = choose_binding(node, placement.most());
  binding.bound = binding.bound && options.bind == BindChoice::automatic;
  return binding;
}

LaunchCommand mpirun_command(const StartOptions& options, const RankPlacement& placement,
                             const NodeTopology& node, const RankProgram& program) {
  const Binding binding = binding_of(options, placement, node);
  Words words(options.mpirun);
  std::string hosts;
  for (const Host& host : placement.hosts)
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.name, host.slots);
  words.add({"-n", std::to_string(placement.ranks()), "--host", hosts});
  if (binding.bound)
    words.add({"--map-by", fmt::format("slot:PE={}", binding.cores_per_rank), "--bind-to", "core"});
  else
    words.add({"--map-by", "slot", "--bind-to", "none"});
  if (!options.agent.empty()) words.add({"--mca", "plm_rsh_agent", options.agent});
  // All daemons are started from here, so that a lost host cuts off no other one.
  words.add({"--mca", "plm_rsh_no_tree_spawn", "1"});
  if (!options.interfaces.empty())
    words.add({"--mca", "oob_tcp_if_include", options.interfaces, "--mca", "btl_tcp_if_include",
               options.interfaces});
  // Silence is noticed by keep-alive messages of TCP: after 2 s without any, one per second, 3 of them.
  words.add({"--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca",
             "oob_tcp_keepalive_probes", std::to_string(lost_host_seconds - 2)});
  // Ranks that wait leave their core to those that share it; set by mpirun itself only when it sees that.
  if (!binding.bound) words.add({"--mca", "mpi_yield_when_idle", "1"});
  for (const std::string& text : options.mca) words.add(mca(text));
  words.add(options.mpirun_args);
  add_program(words, program, binding);
  return {{}, words.take()};
}

LaunchCommand srun_command(const StartOptions& options, const RankPlacement& placement,
                           const NodeTopology& node, const RankProgram& program,
                           const std::string& host_file) {
  const Binding binding = binding_of(options, placement, node);
  LaunchCommand command;
  Words words(options.srun);
  words.add({"--mpi=pmix", fmt::format("--nodes={}", placement.hosts.size()),
             fmt::format("--ntasks={}", placement.ranks())});
  if (placement.uniform()) {
    std::string names;
    for (const Host& host : placement.hosts) names += (names.empty() ? "" : ",") + host.name;
    words.add({fmt::format("--ntasks-per-node={}", placement.most()), "--nodelist=" + names,
               "--distribution=block:block"});
  } else {
    command.environment.push_back("SLURM_HOSTFILE=" + host_file);
    words.add({"--distribution=arbitrary"});
  }
  if (binding.bound)
    words.add({fmt::format("--cpus-per-task={}", binding.cores_per_rank * node.threads_per_core),
               "--cpu-bind=cores"});
  else
    words.add({"--overcommit", "--cpu-bind=none"});
  // The first rank that fails ends the step, the others at once.
  words.add({"--kill-on-bad-exit=1", "--unbuffered"});
  if (!options.interfaces.empty())
    command.environment.push_back("OMPI_MCA_btl_tcp_if_include=" + options.interfaces);
  for (const std::string& text : options.mca) {
    const std::vector<std::string> pair = mca(text);
    command.environment.push_back(fmt::format("OMPI_MCA_{}={}", pair[1], pair[2]));
  }
  words.add(options.srun_args);
  add_program(words, program, binding);
  command.words = words.take();
  return command;
}

std::string host_of_each_rank(const RankPlacement& placement) {
  std::string lines;
  for (const Host& host : placement.hosts)
    for (int i = 0; i < host.slots; ++i) lines += host.name + "\n";
  return lines;
}

}  // namespace triax
