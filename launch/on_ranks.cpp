#include "launch/on_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/agree.h"
#include "checkpoint/manifest.h"
#include "comm/launched.h"
#include "comm/local_ranks.h"
#include "comm/watchdog.h"
#include "core/fuse.h"
#include "core/terminal.h"
#include "engine/cluster.h"
#include "engine/crash.h"
#include "engine/job.h"
#include "launch/commands.h"
#include "launch/signals.h"
#include "parallel/backend.h"

namespace triax {

namespace {

int status_of(const Error& error) {
  const auto* agreed = dynamic_cast<const AgreedError*>(&error);
  return (agreed ? agreed->cause() : error.kind()) == ErrorKind::usage ? exit_usage : exit_fault;
}

// The place in the program is for faults; who wrote a wrong job needs none.
std::string told(const Error& error) {
  return error.kind() == ErrorKind::usage ? error.what() : fmt::format("{}: {}", error.place(), error.what());
}

// With the rank: this one, unless the error quotes those that failed.
std::string told(const Error& error, int rank) {
  const bool quotes = error.kind() == ErrorKind::aborted && (dynamic_cast<const AgreedError*>(&error) ||
                                                             dynamic_cast<const DamagedCheckpoint*>(&error));
  return quotes ? error.what() : fmt::format("rank {}: {}", rank, told(error));
}

void print_error(const std::string& text) {
  std::fflush(stdout);
  std::fputs(fmt::format("{} {}\n", inked(stderr, Ink::red, "triax: error:"), text).c_str(), stderr);
}

// Ranks of a host are adjacent, so this rank's tensor group lies on its host when it lies among them.
void check_nodes(const RunConfig& config, int rank, int local_rank, int local_size) {
  const int tensor = config.parallel.tensor, first = rank - rank % tensor, host = rank - local_rank;
  if (config.parallel.allow_tensor_across_nodes || (first >= host && first + tensor <= host + local_size))
    return;
  fail_usage(
      "parallel.tensor: {}: the tensor group of ranks {} .. {} is spread over several nodes ({} ranks on "
      "this one); tensor can be {}, or set parallel.allow_tensor_across_nodes: true",
      tensor, first, first + tensor - 1, local_size, tensor_sizes_within(config, local_size));
}

CommOptions comm_options(const RunConfig& config) {
  CommOptions comm;
  comm.check_order = config.debug.check_collectives;
  comm.timeout = no_timeout;  // the watchdog knows more
  return comm;
}

// Ranks that have not ended this long after another's failure are ended.
constexpr std::chrono::milliseconds time_to_end{10000};

WatchdogOptions watchdog_options(const RunConfig& config) {
  WatchdogOptions options;
  options.limit = std::chrono::milliseconds(std::llround(1000 * config.logging.watchdog_seconds));
  options.warn = [](const std::string& text) {
    std::fputs(fmt::format("{} {}\n", inked(stderr, Ink::yellow, "triax: warning:"), text).c_str(), stderr);
  };
  options.end = [](const std::string& report, int status) {
    if (!report.empty()) print_error(report);
    std::fflush(nullptr);
    _exit(status);
  };
  return options;
}

int on_threads(const RunConfig& config, const StopFlag& stop, const RankBody& body) {
  const int size = world_size(config);
  int status = exit_done;
  Watchdog watchdog(size, watchdog_options(config));
  CrashReport crash(size);
  std::mutex mutex;
  std::string cause;
  std::optional<Fuse> fuse;
  const auto one_rank = [&](Communicator& world, int rank) {
    const CrashSeat seat(crash, rank, world.recorder());
    try {
      watchdog.watch(rank, world.shared_recorder());
      const int mine = body(world, {rank, size, /*mpi=*/false, stop, &watchdog, &crash});
      watchdog.unwatch(rank);
      if (rank == 0) status = mine;  // the ranks agree
    } catch (const Error& error) {
      throw Error(error.kind(), told(error), error.location());
    }
  };
  const auto on_failure = [&](const Error& error) {
    const std::lock_guard lock(mutex);
    cause = error.what();
    if (fuse) return;
    fuse.emplace(time_to_end, [&] {
      const std::lock_guard again(mutex);
      print_error(fmt::format("{}\nranks that did not end after that are ended now", cause));
      _exit(exit_fault);
    });
  };
  try {
    run_local_ranks(size, comm_options(config), one_rank, on_failure);
  } catch (const Error& error) {
    print_error(error.what());
    return status_of(error);
  }
  return status;
}

// The failure of this process beside the one that came first in the job, unless they are the same.
std::string with_first_cause(const std::string& mine, const std::string& first) {
  const auto line = [](const std::string& text) {
    const std::string head = text.substr(0, text.find('\n'));
    return head.rfind("rank ", 0) == 0 ? head.substr(std::min(head.find(": ") + 2, head.size())) : head;
  };
  if (mine.find(line(first)) != std::string::npos || first.find(line(mine)) != std::string::npos) return mine;
  return fmt::format("first cause: {}\nafter that, {}", first, mine);
}

// What all processes of a launcher find wrong is told by rank 0 alone: true when this rank, after a while,
// need not tell. Rank 0's end makes the launcher send SIGTERM to the others; what only one of them finds is
// told by that one after a while.
bool rank_0_speaks(int rank, const StopFlag& stop) {
  if (rank == 0) return false;
  for (int i = 0; i < 100 && stop.signal.load() != SIGTERM; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return stop.signal.load() == SIGTERM;
}

/// What MPI does while no watchdog can ask others, at its start and its end, has ten times an operation's
/// time as starting and saving have; then this process ends, and with it the job. Null without a limit.
std::unique_ptr<Fuse> without_watchdog(const RunConfig& config, const char* what) {
  if (config.logging.watchdog_seconds == 0) return nullptr;
  int rank = 0, size = 0;
  started_by_mpi(&rank, &size);
  const double seconds = 10 * config.logging.watchdog_seconds;
  return std::make_unique<Fuse>(std::chrono::milliseconds(std::llround(1000 * seconds)), [=] {
    print_error(fmt::format(
        "rank {}: MPI's {} takes longer than {:g} s, ten times logging.watchdog_seconds: another of the {} "
        "processes was not started, is stopped or can't be reached; a rank without a line in logs/ is the "
        "one",
        rank, what, seconds, size));
    std::fflush(nullptr);
    _exit(exit_fault);
  });
}

std::unique_ptr<MpiWorld> started_mpi(const RunConfig& config) {
  const auto fuse = without_watchdog(config, "start");
  return make_mpi_world(comm_options(config));
}

/// A rank that is a process.
class MpiRank {
 public:
  MpiRank(const RunConfig& config, const StopFlag& stop)
      : config_(config), stop_(stop), mpi_(started_mpi(config)), world_(mpi_->communicator()) {
    WatchdogOptions options = watchdog_options(config);
    options.words_on = [this](int rank) { return mpi_->words_on(rank); };
    options.end = [this, end = options.end](const std::string& report, int status) {
      // mpirun ends the others, stopped ones too, when one exits with a fault; srun need not. Who follows
      // (without a report) has given the launcher its time.
      if (report.empty() || !std::getenv("OMPI_COMM_WORLD_RANK")) mpi_->kill_host(/*all=*/report.empty());
      end(report, status);
    };
    watchdog_ = std::make_unique<Watchdog>(world_->size(), std::move(options));
    watchdog_->watch(world_->rank(), world_->shared_recorder());
    crash_ = std::make_unique<CrashReport>(world_->size(), world_->rank());
  }
  ~MpiRank() {
    const auto fuse = without_watchdog(config_, "end");
    crash_.reset();
    watchdog_.reset();
    world_.reset();
    mpi_.reset();
  }
  MpiRank(const MpiRank&) = delete;
  MpiRank& operator=(const MpiRank&) = delete;

  int run(const RankBody& body) {
    const CrashSeat seat(*crash_, world_->rank(), world_->recorder());
    int status = exit_fault;
    std::string text;
    try {
      check_nodes(config_, world_->rank(), mpi_->local_rank(), mpi_->local_size());
      const int done = body(*world_, {mpi_->local_rank(), mpi_->local_size(), /*mpi=*/true, stop_,
                                      watchdog_.get(), crash_.get()});
      watchdog_->unwatch(world_->rank());
      return done;
    } catch (const Error& error) {
      text = told(error, world_->rank());
      status = status_of(error);
    } catch (const std::exception& error) {
      text = fmt::format("rank {}: {}", world_->rank(), error.what());
    }
    return fail(text, status);
  }

 private:
  // Does not return where MPI still works.
  int fail(const std::string& text, int status) {
    const EndCause first = watchdog_->claim({world_->rank(), status, text});
    const Fuse fuse(time_to_end, [&] {
      mpi_->kill_host(/*all=*/true);
      _exit(status);
    });
    if (!rank_0_speaks(world_->rank(), stop_)) print_error(with_first_cause(text, first.text));
    mpi_->abort(status);
    return status;
  }

  const RunConfig& config_;
  const StopFlag& stop_;
  std::unique_ptr<MpiWorld> mpi_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<CrashReport> crash_;  // after MPI has set its own handlers
};

}  // namespace

int run_on_ranks(const char* interrupted, const LoadConfig& load, const RankBody& body) {
  // A console that goes away is no reason to lose a run.
  std::signal(SIGPIPE, SIG_IGN);
  StopFlag stop;
  SignalWatch watch(stop, interrupted);
  int rank = 0, launched = 0;
  const bool mpi = started_by_mpi(&rank, &launched);
  RunConfig config;
  try {
    config = load(mpi ? launched : 0);
    check_backend(config.training.device, config.training.deterministic);
    if (!mpi) check_thread_ranks(config.training.device, world_size(config));
  } catch (const Error&) {
    outlast_launch();  // while all of them are there to be counted
    if (rank_0_speaks(rank, stop)) return exit_usage;
    throw;
  }
  return mpi ? MpiRank(config, stop).run(body) : on_threads(config, stop, body);
}

}  // namespace triax
