#include <algorithm>

#include "comm/threads/group.h"

namespace triax {
namespace {

// Up to this many bytes over all ranks the last rank to come does the work alone: waking helpers costs more.
constexpr int64_t small_work = 512 * 1024;

}  // namespace

std::shared_ptr<Collective> ThreadGroup::post(int rank, const CommCall& call, Collective::Part part) {
  Lock lock(mutex_);
  if (world_->aborted) {
    const Failure why = world_->abort_failure(call.place);
    throw Error(why.kind, why.reason, call.place);
  }
  std::shared_ptr<Collective>& slot = collectives_[call.sequence];
  if (!slot) {
    slot = std::make_shared<Collective>();
    slot->call = call;
    slot->first_rank = rank;
    slot->parts.resize(members_.size());
    plan_pieces(*slot);
  }
  std::shared_ptr<Collective> c = slot;
  if (c->failure) throw Error(c->failure->kind, c->failure->reason, call.place);
  check_same(*c, rank, call);
  part.posted = true;
  part.place = call.place;
  c->parts[rank] = std::move(part);
  if (++c->posted < size()) return c;

  collectives_.erase(call.sequence);
  if (call.op == CommOp::split) make_groups(*c);
  if (c->pieces > 0 && c->parts[rank].memory.device) {
    // The host's part is short: the last rank to come gives the work to its device.
    c->span.begin = Pending::Clock::now();
    c->pieces = 0;
    c->finished = true;
    c->changed.notify_all();
    try {
      run_on_device(*c, rank, name_, *world_->recorders[static_cast<size_t>(world_rank(rank))]);
    } catch (const std::exception& error) {
      c->failure = Failure{ErrorKind::aborted, error.what(), call.place};
      throw;
    }
    c->span.end = Pending::Clock::now();
    return c;
  }
  const int64_t bytes = call.count * static_cast<int64_t>(size_of(call.dtype)) * size();
  if (c->pieces == 0) {
    c->span.begin = c->span.end = Pending::Clock::now();
    c->finished = true;
    c->changed.notify_all();
  } else if (bytes <= small_work) {
    lock.unlock();
    work(*c);
  } else {
    c->changed.notify_all();  // those who wait already help
  }
  return c;
}

// Takes pieces until there are none; whoever ends the last one tells the others.
void ThreadGroup::work(Collective& c) {
  for (int64_t i; (i = c.next.fetch_add(1, std::memory_order_relaxed)) < c.pieces;) {
    if (i == 0) c.span.begin = Pending::Clock::now();
    run_piece(c, i);
    if (c.done.fetch_add(1, std::memory_order_acq_rel) + 1 == c.pieces) {
      std::lock_guard lock(mutex_);
      c.span.end = Pending::Clock::now();
      c.finished = true;
      c.changed.notify_all();
    }
  }
}

void ThreadGroup::wait(Collective& c, int rank, const CommCall& call) {
  const auto deadline = std::chrono::steady_clock::now() + world_->options.timeout;
  Lock lock(mutex_);
  const auto settled = [&] { return c.posted == size() || c.failure || world_->aborted; };
  while (c.posted < size()) {
    if (c.failure) throw Error(c.failure->kind, c.failure->reason, call.place);
    if (world_->aborted) give_up(c.failure, c.changed, world_->abort_failure(call.place));
    if (auto why = gone(rank, call, missing(c))) give_up(c.failure, c.changed, *why);
    if (c.changed.wait_until(lock, deadline) == std::cv_status::no_timeout || settled()) continue;
    const std::string text = report(lock, rank, call, missing(c));
    if (!settled()) give_up(c.failure, c.changed, {ErrorKind::fault, text, call.place});
  }
  if (c.finished) {
    if (c.failure) throw Error(c.failure->kind, c.failure->reason, call.place);
    return;
  }
  // All have come: from here on the operation ends by itself, even while the world is being aborted, and no
  // rank leaves before that, because others may be reading its buffers.
  lock.unlock();
  work(c);
  lock.lock();
  c.changed.wait(lock, [&] { return c.finished; });
}

void ThreadGroup::abandon(Collective& c, int rank) noexcept {
  Lock lock(mutex_);
  if (c.posted < size()) {
    if (!c.failure)
      c.failure = Failure{
          ErrorKind::aborted,
          fmt::format("rank {} failed and left {} in group '{}' unfinished", rank, describe(c.call), name_)};
    c.changed.notify_all();
    return;
  }
  if (c.finished) return;
  lock.unlock();
  work(c);
  lock.lock();
  c.changed.wait(lock, [&] { return c.finished; });
}

void ThreadGroup::check_same(Collective& c, int rank, const CommCall& call) {
  const CommCall& first = c.call;
  if (first.op == call.op && first.dtype == call.dtype && first.count == call.count &&
      first.detail == call.detail)
    return;
  give_up(c.failure, c.changed,
          {ErrorKind::fault,
           fmt::format("the ranks of group '{}' differ in their collective number {}: rank {} called {}, but "
                       "rank {} called {}. All members must call the same operations with the same dtype, "
                       "size and reduction or root in the same order",
                       name_, call.sequence, c.first_rank, describe(first), rank, describe(call)),
           call.place});
}

std::vector<int> ThreadGroup::missing(const Collective& c) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if (!c.parts[r].posted) ranks.push_back(r);
  return ranks;
}

// Called by the last rank that comes to a split: one new group for each color, in the order of ranks here.
void ThreadGroup::make_groups(Collective& c) {
  std::map<int, std::vector<int>> colors;
  for (int r = 0; r < size(); ++r)
    if (c.parts[r].color >= 0) colors[c.parts[r].color].push_back(r);
  for (const auto& [color, ranks] : colors) {
    std::vector<int> members;
    for (int r : ranks) members.push_back(members_[r]);
    auto group = std::make_shared<ThreadGroup>(world_, c.parts[ranks.front()].group_name, std::move(members));
    for (size_t i = 0; i < ranks.size(); ++i) {
      c.parts[ranks[i]].group = group;
      c.parts[ranks[i]].group_rank = static_cast<int>(i);
    }
    std::lock_guard lock(world_->mutex);
    std::erase_if(world_->groups, [](const auto& g) { return g.expired(); });
    world_->groups.push_back(group);
  }
}

}  // namespace triax
