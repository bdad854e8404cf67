#include "launch/launch.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "checkpoint/file_io.h"
#include "checkpoint/folders.h"
#include "core/error.h"
#include "engine/job.h"
#include "launch/supervisor.h"

namespace triax {

namespace {

using std::chrono::milliseconds;

template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format("triax launch: {}\n", fmt::format(text, std::forward<Args>(args)...)).c_str(),
             stderr);
}

milliseconds from_seconds(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// Asked once: a file that is replaced while the job runs has no path any more, and the new one stands at the
// old one's.
const std::string& this_program() {
  static const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  return path;
}

/// Where ranks can go, before anything is known of the job.
struct Places {
  std::vector<Host> hosts;  ///< empty: this machine
  bool slurm = false;       ///< they are an allocation that this process is in
};

Places places_of(const LaunchOptions& o) {
  if (!o.hosts.empty()) return {parse_hosts(o.hosts), false};
  if (!o.hostfile.empty()) return {read_hostfile(o.hostfile), false};
  std::vector<Host> hosts = slurm_allocation();
  const bool slurm = !hosts.empty();
  return {std::move(hosts), slurm};
}

/// The job with as many ranks as --ranks says, else as its file says, else (with data: auto) as fit the
/// hosts.
RunConfig job_on(const LaunchOptions& o, const std::vector<Host>& hosts, int default_slots) {
  RunConfig one = load_job(o.job.files, o.job.sets, {0, o.job.ranks});
  if (o.job.ranks > 0 || hosts.empty()) return one;
  const int unit = world_size(one);
  for (int units = capacity(one, hosts, default_slots) / unit; units > 1; --units) {
    std::vector<std::string> problems;
    RunConfig all = load_job(o.job.files, o.job.sets, {0, units * unit}, problems);
    if (problems.empty()) return all;
  }
  return one;
}

/// This process is in the start of a batch job that Slurm has put back into its queue.
bool requeued() {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  return restarts && std::atoi(restarts) > 0;
}

/// The run's complete checkpoints, as far as they count for this launch.
class Progress {
 public:
  explicit Progress(const RunConfig& config) : dir_(config.checkpoint.dir) {
    const std::string& resume = config.checkpoint.resume;
    if (resume == "auto") return;
    // A run that starts anew, or from a checkpoint named in the job, begins below whatever lies there; but
    // what the batch job's earlier starts have saved is its own.
    const std::string origin = requeued() && resume != "never" ? id_of(resume) : "";
    for (const StepFolder& folder : step_folders(dir_))
      if (!requeued() || (resume != "never" && (origin.empty() || origin_of(folder.path) != origin)))
        older_.insert(id_of(folder.path));
  }
  /// Step of the newest one that belongs to this launch, or -1.
  int64_t newest() const {
    for (const StepFolder& folder : step_folders(dir_)) {
      const std::string id = id_of(folder.path);
      if (!id.empty() && !older_.count(id)) return folder.step;
    }
    return -1;
  }

 private:
  static std::string id_of(const std::filesystem::path& folder) {
    try {
      return read_complete(folder).id;
    } catch (const Error&) {
      return "";  // the ranks say what is wrong with it
    }
  }
  // The id of the checkpoint that its run began with.
  static std::string origin_of(const std::filesystem::path& folder) {
    try {
      const nlohmann::json extra = read_complete(folder).extra;
      return extra.contains("origin") ? extra["origin"].value("id", "") : "";
    } catch (const std::exception&) {
      return "";
    }
  }

  std::string dir_;
  std::set<std::string> older_;
};

class Launch {
 public:
  Launch(const LaunchOptions& options, Places places)
      : o_(options),
        places_(std::move(places)),
        node_(places_.slurm ? within_allocation(read_topology()) : read_topology()),
        config_(job_on(o_, places_.hosts, node_.cores)),
        progress_(config_),
        resume_own_(progress_.newest() >= 0) {}

  int dry_run();
  int run(Supervisor& supervisor);

 private:
  struct Start {
    LaunchCommand command;
    bool possible = false;
    std::string cause;  ///< why it is not
  };

  std::vector<std::string> train_arguments(const RunConfig& config) const;
  LaunchCommand command_for(const RunConfig& config, const std::vector<Host>& hosts) const;
  std::optional<RunConfig> shrunk_to(const std::vector<Host>& hosts) const;
  std::string no_replica(const std::vector<Host>& hosts) const;
  RunConfig job_for(const std::vector<Host>& hosts) const;
  std::vector<Host> answering(std::vector<std::string>& silent) const;
  std::vector<Host> answering_in_time(Supervisor& supervisor, std::vector<std::string>& silent) const;
  void tell_shrunk(const std::string& why, const RunConfig& shrunk, const std::vector<Host>& hosts) const;
  Start next_start(Supervisor& supervisor);
  void requeue() const;

  const LaunchOptions& o_;
  Places places_;
  NodeTopology node_;
  RunConfig config_;
  Progress progress_;
  bool resume_own_;  // a checkpoint of this launch exists: what checkpoint.resume says is done
};

// `triax train`'s arguments for the job, which may have been shrunk.
std::vector<std::string> Launch::train_arguments(const RunConfig& config) const {
  std::vector<std::string> words = o_.job.files;
  const auto set = [&](const std::string& text) { words.insert(words.end(), {"--set", text}); };
  for (const std::string& text : o_.job.sets) set(text);
  if (config.parallel.data != config_.parallel.data) {
    set(fmt::format("parallel.data={}", config.parallel.data));
    set(fmt::format("training.micro_batch_size={}", config.training.micro_batch_size));
    if (config.parallel.zero_shard_ranks != config_.parallel.zero_shard_ranks)
      set("parallel.zero_shard_ranks=auto");
  }
  if (resume_own_ && config_.checkpoint.resume != "auto") set("checkpoint.resume=auto");
  if (o_.accept_changes) words.emplace_back("--accept-changes");
  if (o_.quiet) words.emplace_back("--quiet");
  if (o_.verbose) words.emplace_back("--verbose");
  return words;
}

LaunchCommand Launch::command_for(const RunConfig& config, const std::vector<Host>& hosts) const {
  const RankPlacement placement =
      hosts.empty() ? RankPlacement{{{"localhost", world_size(config)}}} : place(config, hosts, node_.cores);
  const RankProgram program{this_program(), train_arguments(config), config.training.threads > 0};
  if (!places_.slurm) return mpirun_command(o_.start, placement, node_, program);
  const std::string file = fmt::format("{}/slurm-hosts", config.output_dir);
  if (!placement.uniform() && !o_.dry_run) {
    std::filesystem::create_directories(config.output_dir);
    replace_file(file, host_of_each_rank(placement));
  }
  return srun_command(o_.start, placement, node_, program, file);
}

// The job with the largest data degree that fits the hosts; the job itself when that fits; none when no
// replica does.
std::optional<RunConfig> Launch::shrunk_to(const std::vector<Host>& hosts) const {
  const int ranks = capacity(config_, hosts, node_.cores);
  if (ranks >= world_size(config_)) return config_;
  RunConfig shrunk = config_;
  const auto sets_for = [&](const DataDegree& d, bool shards) {
    std::vector<std::string> sets = o_.job.sets;
    sets.push_back(fmt::format("parallel.data={}", d.data));
    sets.push_back(fmt::format("training.micro_batch_size={}", d.micro_batch_size));
    if (!shards) sets.emplace_back("parallel.zero_shard_ranks=auto");
    return sets;
  };
  const auto legal = [&](const DataDegree& d) {
    for (const bool shards : {true, false}) {
      std::vector<std::string> problems;
      const RunConfig candidate = load_job(o_.job.files, sets_for(d, shards), {}, problems);
      if (!problems.empty()) continue;
      shrunk = candidate;
      return true;
    }
    return false;
  };
  if (!largest_data_degree(config_, ranks, legal)) return std::nullopt;
  return shrunk;
}

std::string Launch::no_replica(const std::vector<Host>& hosts) const {
  return fmt::format(
      "--elastic: the hosts that are left ({}) take {} ranks in whole tensor groups, but one replica of the "
      "model has "
      "{} (tensor {} x pipeline {}); bring hosts back, or start with smaller degrees",
      hosts.empty() ? "none" : to_string(hosts), capacity(config_, hosts, node_.cores),
      config_.parallel.tensor * config_.parallel.pipeline, config_.parallel.tensor,
      config_.parallel.pipeline);
}

// Of hosts that are all there is: those of the command line, or of an allocation.
RunConfig Launch::job_for(const std::vector<Host>& hosts) const {
  if (!o_.elastic || hosts.empty()) return config_;
  const std::optional<RunConfig> shrunk = shrunk_to(hosts);
  if (!shrunk) fail_usage("{}", no_replica(hosts));
  return *shrunk;
}

// The hosts that can be reached now, in their order; the others' names in `silent`.
std::vector<Host> Launch::answering(std::vector<std::string>& silent) const {
  const char* set = std::getenv("OMPI_MCA_plm_rsh_agent");
  const std::string agent = !o_.start.agent.empty() ? o_.start.agent : set ? set : "";
  std::vector<std::string> base =
      agent.empty() ? std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"}
                    : split(agent);
  std::vector<char> answers(places_.hosts.size(), 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < places_.hosts.size(); ++i)
    if (!is_this_host(places_.hosts[i].name))
      threads.emplace_back([&, i] {
        std::vector<std::string> words = base;
        words.insert(words.end(), {places_.hosts[i].name, "true"});
        answers[i] = Supervisor::quiet_status(words, std::chrono::seconds(10)) == 0;
      });
  for (std::thread& thread : threads) thread.join();
  std::vector<Host> hosts;
  silent.clear();
  for (size_t i = 0; i < places_.hosts.size(); ++i) {
    if (answers[i])
      hosts.push_back(places_.hosts[i]);
    else
      silent.push_back(places_.hosts[i].name);
  }
  return hosts;
}

// The same, with the patience that hosts which start again are given.
std::vector<Host> Launch::answering_in_time(Supervisor& supervisor, std::vector<std::string>& silent) const {
  const auto end = std::chrono::steady_clock::now() + from_seconds(o_.host_patience);
  std::vector<Host> hosts = answering(silent);
  if (!silent.empty() && o_.host_patience > 0)
    say("no answer from {}; trying for {:g} s (--host-patience)", fmt::join(silent, ", "), o_.host_patience);
  while (!silent.empty() && std::chrono::steady_clock::now() < end &&
         supervisor.wait(std::min(from_seconds(2), from_seconds(o_.host_patience))))
    hosts = answering(silent);
  return hosts;
}

void Launch::tell_shrunk(const std::string& why, const RunConfig& shrunk,
                         const std::vector<Host>& hosts) const {
  say("{}; going on with data degree {} instead of {} ({} instead of {} ranks, micro-batches of {}) on {}; "
      "the "
      "global batch of {} stays",
      why, shrunk.parallel.data, config_.parallel.data, world_size(shrunk), world_size(config_),
      shrunk.training.micro_batch_size, to_string(hosts), shrunk.training.global_batch_size);
}

Launch::Start Launch::next_start(Supervisor& supervisor) {
  if (places_.hosts.empty()) return {command_for(config_, {}), true, {}};
  if (places_.slurm) {  // which looks after its nodes itself
    const RunConfig job = job_for(places_.hosts);
    if (world_size(job) < world_size(config_)) tell_shrunk("the allocation is smaller", job, places_.hosts);
    return {command_for(job, places_.hosts), true, {}};
  }
  std::vector<std::string> silent;
  const std::vector<Host> hosts = answering_in_time(supervisor, silent);
  const bool enough = capacity(config_, hosts, node_.cores) >= world_size(config_);
  if (silent.empty() || enough) {
    if (!silent.empty()) say("{} lost; the other hosts take all ranks", fmt::join(silent, ", "));
    return {command_for(config_, hosts), true, {}};
  }
  if (!o_.elastic)
    return {
        {},
        false,
        fmt::format("no answer from {}; the hosts left take {} of {} ranks (--elastic goes on with fewer)",
                    fmt::join(silent, ", "), capacity(config_, hosts, node_.cores), world_size(config_))};
  const std::optional<RunConfig> shrunk = shrunk_to(hosts);
  if (!shrunk) return {{}, false, no_replica(hosts)};
  tell_shrunk(fmt::format("{} lost", fmt::join(silent, ", ")), *shrunk, hosts);
  return {command_for(*shrunk, hosts), true, {}};
}

int Launch::dry_run() {
  const LaunchCommand command = command_for(job_for(places_.hosts), places_.hosts);
  std::fputs((to_shell(command) + "\n").c_str(), stdout);
  return exit_done;
}

void Launch::requeue() const {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (!o_.requeue || !job) return;
  say("putting job {} back into the queue", job);
  const int status = Supervisor::quiet_status({"scontrol", "requeue", job}, std::chrono::seconds(60));
  if (status != 0)
    say("scontrol requeue {} failed with status {}: submit the job again to continue", job, status);
}

int Launch::run(Supervisor& supervisor) {
  if (!places_.hosts.empty() && !o_.elastic)
    place(config_, places_.hosts, node_.cores);  // refused before anything
  RestartPolicy policy(o_.max_restarts, from_seconds(o_.backoff), progress_.newest());
  for (;;) {
    Supervised run;
    const Start next = next_start(supervisor);
    if (supervisor.stop_signal()) {
      say("asked to stop before the ranks were started");
      return supervisor.stop_signal() == SIGINT ? exit_interrupted : exit_stopped;
    }
    if (next.possible) {
      if (!o_.quiet) say("{}", to_shell(next.command));
      run = supervisor.run(next.command);
    } else {
      run.attempt.status = exit_fault;
      run.cause = next.cause;
    }
    run.attempt.checkpoint = progress_.newest();
    resume_own_ = run.attempt.checkpoint >= 0;
    const Decision decision = policy.after(run.attempt);
    if (decision.status == exit_fault || decision.status == exit_usage)
      say("the job failed (status {} of {}){}{}", run.attempt.status,
          next.possible ? next.command.words[0] : "nobody",
          run.cause.empty() ? "" : "; first cause: ", run.cause);
    if (!decision.restart) {
      if (!decision.reason.empty()) say("it is not started again: {}", decision.reason);
      if (decision.status == exit_fault && o_.elastic && o_.max_restarts == 0)
        say("--elastic goes on without lost hosts at the next start; --max-restarts K starts the job again");
      if (decision.status == exit_stopped && run.attempt.stop_signal == SIGUSR1) requeue();
      return decision.status;
    }
    say("starting it again from {} in {:g} s: {}",
        run.attempt.checkpoint >= 0 ? fmt::format("the checkpoint of step {}", run.attempt.checkpoint)
                                    : std::string("where it began"),
        static_cast<double>(decision.wait.count()) / 1000, decision.reason);
    supervisor.wait(decision.wait);  // a signal ends it above
  }
}

// `--slurm`: the line of the batch script is this one, without what is for sbatch.
std::vector<std::string> inner_line(const LaunchOptions& o) {
  std::vector<std::string> line{this_program(), "launch"};
  const auto add = [&](const std::string& option, const std::string& value) {
    line.insert(line.end(), {option, value});
  };
  for (const std::string& file : o.job.files) line.push_back(std::filesystem::absolute(file).string());
  if (o.job.ranks > 0 && !o.elastic) add("--ranks", std::to_string(o.job.ranks));
  for (const std::string& text : o.job.sets) add("--set", text);
  if (o.accept_changes) line.emplace_back("--accept-changes");
  if (o.quiet) line.emplace_back("--quiet");
  if (o.verbose) line.emplace_back("--verbose");
  if (o.max_restarts > 0) add("--max-restarts", std::to_string(o.max_restarts));
  if (o.max_restarts > 0) add("--backoff", fmt::format("{:g}", o.backoff));
  if (o.elastic) line.emplace_back("--elastic");
  if (o.start.bind == BindChoice::never) add("--bind", "none");
  if (!o.start.interfaces.empty()) add("--interfaces", o.start.interfaces);
  for (const std::string& text : o.start.mca) add("--mca", text);
  for (const std::string& text : o.start.srun_args) line.push_back("--srun-args=" + text);
  line.emplace_back("--requeue");
  return line;
}

/// The job with as many ranks as --ranks says, else (with data: auto) as the nodes asked for take, else as
/// its file says.
RunConfig job_to_submit(const LaunchOptions& o) {
  const int asked = o.slurm.nodes * o.slurm.ranks_per_node;
  if (o.job.ranks == 0 && asked > 0) {
    std::vector<std::string> problems;
    RunConfig config = load_job(o.job.files, o.job.sets, {0, asked}, problems);
    if (problems.empty()) return config;
  }
  return load_job(o.job.files, o.job.sets, {0, o.job.ranks});
}

int submit(const LaunchOptions& o) {
  if (!o.hosts.empty() || !o.hostfile.empty())
    fail_usage(
        "--slurm gets its hosts from Slurm; leave out --hosts and --hostfile, or name nodes with "
        "--sbatch-args=--nodelist=...");
  if (o.start.mpirun != StartOptions{}.mpirun || !o.start.agent.empty() || !o.start.mpirun_args.empty() ||
      o.host_patience != LaunchOptions{}.host_patience)
    fail_usage(
        "--mpirun, --agent, --mpirun-args and --host-patience are for ranks that mpirun starts; with --slurm "
        "srun does (--srun-args)");
  const RunConfig config = job_to_submit(o);
  const SlurmShape shape = slurm_shape(o.slurm, config, o.elastic);
  const std::string script = batch_script(o.slurm, shape, config.name, config.output_dir, inner_line(o));
  if (o.dry_run) {
    std::fputs(script.c_str(), stdout);
    return exit_done;
  }
  const std::string path = config.output_dir + "/job.sbatch";
  std::filesystem::create_directories(config.output_dir);
  replace_file(path, script);
  std::fflush(nullptr);
  say("sbatch {}", path);
  execlp("sbatch", "sbatch", path.c_str(), nullptr);
  fail("sbatch can't be started: {}; is Slurm installed here, and its bin folder in PATH?",
       std::strerror(errno));
}

}  // namespace

int launch(const LaunchOptions& options) {
  LaunchOptions o = options;
  const auto as_words = [](std::vector<std::string>& texts) {
    std::vector<std::string> words;
    for (const std::string& text : texts)
      for (const std::string& word : split(text)) words.push_back(word);
    texts = words;
  };
  as_words(o.start.mpirun_args);
  as_words(o.start.srun_args);
  if (o.submit) return submit(o);
  const Places places = places_of(o);
  if (o.dry_run) return Launch(o, places).dry_run();
  // From here on signals are heard, also while the job is read.
  Supervisor supervisor(places.slurm ? EndAtOnce::srun : EndAtOnce::mpirun);
  return Launch(o, places).run(supervisor);
}

}  // namespace triax
