#include "comm/mpi/engine.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

namespace triax {
namespace {

using Clock = std::chrono::steady_clock;

using namespace std::chrono_literals;

// While a rank looks for what it waits for, it offers its core to others. Where every rank has a core, to be
// woken takes longer (50 to 120 us) than most waits; where ranks share cores, whoever looks holds up the one
// that it waits for.
constexpr std::chrono::nanoseconds patience = 2ms;
// A rank whose peers ring needs no limit; this one is for what can't happen.
constexpr std::chrono::nanoseconds longest_sleep = 100ms;

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<Engine> e, MPI_Comm c, std::string n)
    : engine(std::move(e)), comm(c), name(std::move(n)) {
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  world_ranks.resize(ranks.size());
  MPI_Group mine, world;
  check_mpi(MPI_Comm_group(comm, &mine), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_translate_ranks(mine, size, ranks.data(), world, world_ranks.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
  if (engine->options().host_memory) host = HostGroup::make(comm, engine->board(), world_ranks);
}

MpiGroup::~MpiGroup() {
  // Freeing is collective: not when the other members may be elsewhere.
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !engine->failed() && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
}

bool Operation::advance() {
  while (ready()) {
    if (post(step_++)) continue;
    span_.end = Pending::Clock::now();
    return true;
  }
  return false;
}

std::shared_ptr<Operation> Engine::start(std::shared_ptr<Operation> operation) {
  if (failed())
    throw Error(ErrorKind::aborted, fmt::format("stopped because {}", cause_), operation->call().place);
  board_.started(operation->group().name, operation->call());
  try {
    if (operation->advance()) {
      board_.finished(operation->call());
      return nullptr;
    }
  } catch (const Error& error) {
    abandon(error.what());
    throw Error(error.kind(),
                fmt::format("{} in group '{}': {}", describe(operation->call()), operation->group().name,
                            error.what()),
                operation->call().place);
  }
  active_.push_back(operation);
  return operation;
}

void Engine::poll() {
  for (auto it = active_.begin(); it != active_.end();) {
    try {
      if ((*it)->advance()) {
        board_.finished((*it)->call());
        it = active_.erase(it);
      } else {
        ++it;
      }
    } catch (const Error& error) {
      const Operation& failing = **it;
      const std::string text =
          fmt::format("{} in group '{}': {}", describe(failing.call()), (*it)->group().name, error.what());
      abandon(text);
      throw Error(error.kind(), text, failing.call().place);
    }
  }
}

void Engine::wait(Operation& operation) {
  const auto start = Clock::now();
  auto last_heard = start;
  uint32_t heard = board_.bell();
  const auto is_active = [&] {
    return std::any_of(active_.begin(), active_.end(), [&](const auto& o) { return o.get() == &operation; });
  };
  for (;;) {
    if (failed())
      throw Error(ErrorKind::aborted, fmt::format("stopped because {}", cause_), operation.call().place);
    poll();
    if (!is_active()) return;
    const auto now = Clock::now();
    const auto waited = now - start;
    if (waited > options_.timeout) {
      const std::string text = report(operation);
      abandon(text);
      throw Error(ErrorKind::fault, text, operation.call().place);
    }
    rest(waited, now - last_heard, heard);
    if (const uint32_t bell = board_.bell(); bell != heard) {
      heard = bell;  // before poll() looks at what it was rung for
      last_heard = now;
    }
  }
}

// How a waiting rank leaves the processor to its peers: at first it only yields, then it sleeps. `silent` is
// the time since its bell was rung last, `heard` what that made it.
void Engine::rest(std::chrono::nanoseconds waited, std::chrono::nanoseconds silent, uint32_t heard) {
  const bool woken = std::all_of(active_.begin(), active_.end(), [](const auto& o) { return o->rings(); });
  if (woken) {
    if (!board_.crowded() && silent < patience)
      sched_yield();
    else
      board_.sleep(heard, longest_sleep);
  } else if (waited < patience) {
    sched_yield();
  } else {
    // MPI has to be asked. A sleep ends some 60 us late.
    std::this_thread::sleep_for(waited < 100ms ? 50us : 500us);
  }
}

void Engine::abandon(const std::string& cause) noexcept {
  // The operations stay in the list: MPI may still hold their buffers.
  if (cause_.empty()) cause_ = cause;
}

std::string Engine::report(Operation& operation) {
  const MpiGroup& group = operation.group();
  constexpr size_t shown = 8;
  std::string names, places;
  const std::vector<int> peers = operation.peers();
  for (size_t i = 0; i < std::min(peers.size(), shown); ++i) {
    names += fmt::format("{}{}", i ? ", " : "", peers[i]);
    const int world_rank = group.world_ranks[peers[i]];
    places +=
        fmt::format("; rank {} (world rank {}) {}", peers[i], world_rank, board_.whereabouts(world_rank));
  }
  if (peers.size() > shown) names += fmt::format(" and {} more", peers.size() - shown);
  return fmt::format(
      "time-out after {:g} s: rank {} (world rank {}) of group '{}' of {} waits in {} for rank{} {}{}",
      std::chrono::duration<double>(options_.timeout).count(), group.rank, group.world_ranks[group.rank],
      group.name, group.size, describe(operation.call()), peers.size() > 1 ? "s" : "", names, places);
}

std::vector<char> Engine::take_staging(size_t bytes) {
  std::vector<char> staging;
  if (!staging_.empty()) {
    staging = std::move(staging_.back());
    staging_.pop_back();
  }
  if (staging.size() < bytes) staging.resize(bytes);
  return staging;
}

void Engine::give_staging(std::vector<char> staging) {
  if (!staging.empty()) staging_.push_back(std::move(staging));
}

}  // namespace triax
