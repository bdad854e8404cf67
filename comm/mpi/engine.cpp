#include "comm/mpi/engine.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

namespace triax {
namespace {

using Clock = std::chrono::steady_clock;

// How a waiting rank leaves the processor to its peers: at first it only yields, then it sleeps. A sleep ends
// some 60 us late, which eight ranks on two cores pay in every message; yielding longer gains nothing more.
void rest(Clock::duration waited) {
  using namespace std::chrono_literals;
  if (waited < 2ms)
    sched_yield();
  else if (waited < 100ms)
    std::this_thread::sleep_for(50us);
  else
    std::this_thread::sleep_for(500us);
}

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
}

MpiGroup::~MpiGroup() {
  // Freeing is collective: not when the other members may be elsewhere.
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !engine->failed() && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
}

bool Operation::advance() {
  while (requests_.test()) {
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
  const auto is_active = [&] {
    return std::any_of(active_.begin(), active_.end(), [&](const auto& o) { return o.get() == &operation; });
  };
  for (;;) {
    if (failed())
      throw Error(ErrorKind::aborted, fmt::format("stopped because {}", cause_), operation.call().place);
    poll();
    if (!is_active()) return;
    const auto waited = Clock::now() - start;
    if (waited > options_.timeout) {
      const std::string text = report(operation);
      abandon(text);
      throw Error(ErrorKind::fault, text, operation.call().place);
    }
    rest(waited);
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
