// The command line of `triax launch`.
#include <memory>

#include "launch/cli.h"
#include "launch/launch.h"

namespace triax {

namespace {

void add_places(CLI::App& command, LaunchOptions& o) {
  // An empty variable of a script must not start the job on this machine alone.
  const auto named = [](const std::string& text) -> std::string {
    return text.empty() ? "is empty; name hosts, as a:8,b:8, or leave it out" : "";
  };
  CLI::Option* hosts = command.add_option("--hosts", o.hosts, "hosts and the ranks each takes: a:8,b:8")
                           ->check(CLI::Validator(named, "", ""));
  command.add_option("--hostfile", o.hostfile, "file with a line per host: NAME slots=8")
      ->excludes(hosts)
      ->check(CLI::Validator(named, "", ""));
  command.add_option("--interfaces", o.start.interfaces,
                     "networks that MPI may use for TCP: eth0 or 10.0.0.0/16");
  command.add_option("--agent", o.start.agent, "program that runs a command on a host (default: ssh)");
  command
      .add_option_function<std::string>(
          "--bind",
          [&o](const std::string& to) {
            o.start.bind = to == "none" ? BindChoice::never : BindChoice::automatic;
          },
          "auto: each rank gets cores of its own where there are enough; none")
      ->check(CLI::IsMember({"auto", "none"}));
  command.add_option("--mpirun", o.start.mpirun, "Open MPI's mpirun, where it is not the first in PATH");
  const auto list = [&](const char* name, std::vector<std::string>& words, const char* what) {
    command.add_option(name, words, what)->allow_extra_args(false)->take_all();
  };
  list("--mca", o.start.mca, "KEY=VALUE for Open MPI; repeatable");
  list("--mpirun-args", o.start.mpirun_args, "words for mpirun as they are; repeatable");
  list("--srun-args", o.start.srun_args, "words for srun as they are; repeatable");
}

void add_failures(CLI::App& command, LaunchOptions& o) {
  command.add_flag("--dry-run", o.dry_run, "print what would be run, and nothing else");
  command
      .add_option(
          "--max-restarts", o.max_restarts,
          "start a failed job again from its newest checkpoint, until so many failures in a row brought "
          "no newer one")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--backoff", o.backoff, "seconds before the first restart; doubled with each failure")
      ->capture_default_str()
      ->check(number_between(0, 300));
  command.add_flag("--elastic", o.elastic,
                   "when hosts are lost, go on with the largest data degree that fits those left");
  command
      .add_option("--host-patience", o.host_patience,
                  "seconds that a host may not answer before it counts as lost")
      ->capture_default_str()
      ->check(number_between(0, 86400));
}

void add_slurm(CLI::App& command, LaunchOptions& o) {
  const auto group = "Slurm";
  CLI::Option* slurm =
      command.add_flag("--slurm", o.submit, "write a batch script and submit it")->group(group);
  const auto with_slurm = [&](CLI::Option* option) { option->needs(slurm)->group(group); };
  with_slurm(command.add_option("--nodes", o.slurm.nodes, "nodes to ask for")->check(CLI::Range(1, 1 << 20)));
  with_slurm(command.add_option("--ranks-per-node", o.slurm.ranks_per_node, "ranks on each node")
                 ->check(CLI::Range(1, 1 << 16)));
  with_slurm(command.add_option("--cpus-per-task", o.slurm.cpus_per_task, "processors of each rank")
                 ->check(CLI::Range(1, 1 << 16)));
  with_slurm(command.add_option("--time", o.slurm.time, "time to ask for, such as 24:00:00"));
  with_slurm(command.add_option("--partition", o.slurm.partition, "partition to ask for"));
  with_slurm(command.add_option("--account", o.slurm.account, "account to charge"));
  with_slurm(command
                 .add_option("--stop-before", o.slurm.stop_before,
                             "seconds before the end of the time when a checkpoint is asked for")
                 ->capture_default_str()
                 ->check(CLI::Range(1, 65535)));
  with_slurm(command.add_option("--sbatch-args", o.slurm.sbatch_args, "more options of sbatch; repeatable")
                 ->allow_extra_args(false)
                 ->take_all());
  command
      .add_flag("--requeue", o.requeue,
                "inside of a batch job: after a stop by SIGUSR1, put it back into the queue")
      ->group(group);
}

}  // namespace

void add_launch(CLI::App& app, const Choose& choose) {
  const auto options = std::make_shared<LaunchOptions>();  // lives as long as the parser that fills it
  CLI::App* command = app.add_subcommand(
      "launch", "start a job's ranks as processes, through mpirun or srun, and again when they fail");
  add_job(*command, options->job);
  command->add_flag("--accept-changes", options->accept_changes,
                    "resume although keys that change the mathematics differ");
  CLI::Option* quiet = command->add_flag("-q,--quiet", options->quiet, "no line per step");
  command->add_flag("-v,--verbose", options->verbose, "what ranks write to their logs, on standard error too")
      ->excludes(quiet);
  add_places(*command, *options);
  add_failures(*command, *options);
  add_slurm(*command, *options);
  command->footer(
      "Example:\n"
      "  triax launch job.yaml --hosts a:8,b:8 --max-restarts 3 --elastic\n"
      "  triax launch job.yaml --hostfile hosts --dry-run\n"
      "  triax launch job.yaml --slurm --nodes 4 --ranks-per-node 8 --time 24:00:00\n"
      "Without hosts the ranks are processes of this machine; inside of a Slurm allocation they fill it.\n"
      "Exit status: that of `triax train`.");
  command->final_callback([options, choose] { choose([options] { return launch(*options); }); });
}

}  // namespace triax
