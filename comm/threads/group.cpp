#include "comm/threads/group.h"

#include <algorithm>

namespace triax {

Failure ThreadWorldState::abort_failure(const std::source_location& place) {
  std::lock_guard lock(mutex);
  return {ErrorKind::aborted, fmt::format("stopped because {}", cause), place};
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorldState> world, std::string name, std::vector<int> members)
    : world_(std::move(world)),
      name_(std::move(name)),
      members_(std::move(members)),
      state_(members_.size(), Member::present) {}

void ThreadGroup::wake() noexcept {
  std::lock_guard lock(mutex_);
  for (const auto& [sequence, c] : collectives_) c->changed.notify_all();
  for (const auto& [peers, queue] : messages_)
    for (const auto& m : queue) m->changed.notify_all();
}

void ThreadGroup::leave(int rank, bool failing) noexcept {
  {
    std::lock_guard lock(mutex_);
    state_[rank] = failing ? Member::failed : Member::left;
  }
  wake();
}

void ThreadGroup::give_up(std::optional<Failure>& failure, std::condition_variable& changed,
                          const Failure& why) {
  failure = Failure{ErrorKind::aborted, why.reason, why.place};  // whoever meets it later only follows
  changed.notify_all();
  throw Error(why.kind, why.reason, why.place);
}

// One of `peers` has left the group and will never come.
std::optional<Failure> ThreadGroup::gone(int rank, const CommCall& call,
                                         const std::vector<int>& peers) const {
  for (int peer : peers) {
    if (state_[peer] == Member::failed)
      return Failure{ErrorKind::aborted,
                     fmt::format("stopped because rank {} of group '{}' failed", peer, name_), call.place};
    if (state_[peer] == Member::left)
      return Failure{
          ErrorKind::fault,
          fmt::format("rank {} of group '{}' of {} waits in {} for rank {}, which has given up its "
                      "communicator without making this call",
                      rank, name_, size(), describe(call), peer),
          call.place};
  }
  return std::nullopt;
}

// Who waits where for whom, and where those are instead. Reads their recorders without the group's lock, so
// things may have changed when it returns.
std::string ThreadGroup::report(Lock& lock, int rank, const CommCall& call, const std::vector<int>& peers) {
  lock.unlock();
  constexpr size_t shown = 8;
  std::string names, places;
  for (size_t i = 0; i < std::min(peers.size(), shown); ++i) {
    names += fmt::format("{}{}", i ? ", " : "", peers[i]);
    const int world_rank = members_[peers[i]];
    places += fmt::format("; rank {} (world rank {}) {}", peers[i], world_rank,
                          world_->recorders[world_rank]->whereabouts());
  }
  if (peers.size() > shown) names += fmt::format(" and {} more", peers.size() - shown);
  const double seconds = std::chrono::duration<double>(world_->options.timeout).count();
  std::string text = fmt::format(
      "time-out after {:g} s: rank {} (world rank {}) of group '{}' of {} waits in {} for rank{} {}{}",
      seconds, rank, members_[rank], name_, size(), describe(call), peers.size() > 1 ? "s" : "", names,
      places);
  lock.lock();
  return text;
}

}  // namespace triax
