#include <algorithm>
#include <cstring>

#include "comm/threads/group.h"

namespace triax {

std::shared_ptr<Message> ThreadGroup::post(bool is_send, int rank, int peer, const CommCall& call,
                                           void* buffer, const DeviceMemory& memory) {
  DeviceLink::Event ready;
  if (memory.device) ready = memory.link->record(*memory.device);
  Lock lock(mutex_);
  if (world_->aborted) {
    const Failure why = world_->abort_failure(call.place);
    throw Error(why.kind, why.reason, call.place);
  }
  // A queue holds messages of one side only: the other side takes the oldest of them.
  auto& queue = messages_[is_send ? std::pair(rank, peer) : std::pair(peer, rank)];
  if (queue.empty() || queue.front()->is_send == is_send) {
    auto m = std::make_shared<Message>();
    m->is_send = is_send;
    m->call = call;
    if (is_send)
      m->in = buffer;
    else
      m->out = buffer;
    m->ready = std::move(ready);
    queue.push_back(m);
    return m;
  }

  const std::shared_ptr<Message> m = queue.front();
  if (m->failure) throw Error(m->failure->kind, m->failure->reason, call.place);
  if (m->call.dtype != call.dtype || m->call.count != call.count)
    give_up(m->failure, m->changed,
            {ErrorKind::fault,
             fmt::format("a message in group '{}' does not fit: rank {} called {}, but rank {} called {}",
                         name_, peer, describe(m->call), rank, describe(call)),
             call.place});
  queue.pop_front();
  m->matched = true;  // the first side does not leave until the copy is done
  lock.unlock();
  const auto begin = Pending::Clock::now();
  const size_t bytes = static_cast<size_t>(call.count) * size_of(call.dtype);
  void* const to = is_send ? m->out : buffer;
  const void* const from = is_send ? buffer : m->in;
  if (memory.device) {
    try {
      Recorder& recorder = *world_->recorders[static_cast<size_t>(world_rank(rank))];
      memory.link->wait(*memory.device, m->ready);
      const int begin = recorder.begin_moving();
      memory.device->copy(to, from, bytes);
      recorder.end_moving(begin, name_, call.op);
      m->done_on_device = memory.link->record(*memory.device);
    } catch (const std::exception& error) {
      lock.lock();
      m->failure = Failure{ErrorKind::aborted, error.what(), call.place};
      m->finished = true;
      m->changed.notify_all();
      throw;
    }
  } else if (bytes) {
    std::memcpy(to, from, bytes);
  }
  lock.lock();
  m->span = {begin, Pending::Clock::now()};
  m->finished = true;
  m->changed.notify_all();
  return nullptr;
}

void ThreadGroup::wait(Message& m, int rank, const CommCall& call) {
  const auto deadline = std::chrono::steady_clock::now() + world_->options.timeout;
  const std::vector<int> peer{call.detail};
  Lock lock(mutex_);
  const auto settled = [&] { return m.matched || m.failure || world_->aborted; };
  while (!m.matched) {
    if (m.failure) throw Error(m.failure->kind, m.failure->reason, call.place);
    if (world_->aborted) give_up(m.failure, m.changed, world_->abort_failure(call.place));
    if (auto why = gone(rank, call, peer)) give_up(m.failure, m.changed, *why);
    if (m.changed.wait_until(lock, deadline) == std::cv_status::no_timeout || settled()) continue;
    const std::string text = report(lock, rank, call, peer);
    if (!settled()) give_up(m.failure, m.changed, {ErrorKind::fault, text, call.place});
  }
  m.changed.wait(lock, [&] { return m.finished; });
  if (m.failure) throw Error(m.failure->kind, m.failure->reason, call.place);
}

void ThreadGroup::abandon(Message& m) noexcept {
  Lock lock(mutex_);
  if (m.matched)
    m.changed.wait(lock, [&] { return m.finished; });
  else if (!m.failure)
    m.failure = Failure{ErrorKind::aborted, fmt::format("a rank failed and left {} in group '{}' unfinished",
                                                        describe(m.call), name_)};
}

}  // namespace triax
