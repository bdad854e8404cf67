#include "comm/local_ranks.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace triax {
namespace {

// Enough for deep call chains and reduction buffers; untouched pages of it cost nothing.
constexpr size_t stack_bytes = 8 << 20;

/// The ranks of one run and the first thing that went wrong.
class LocalRanks {
 public:
  LocalRanks(int size, const CommOptions& options, const std::function<void(Communicator&, int)>& body,
             const std::function<void(const Error&)>& on_failure)
      : world_(size, options), body_(body), on_failure_(on_failure) {
    for (int rank = 0; rank < size; ++rank)
      seats_.push_back({this, rank, world_.communicator(rank), {}, false});
  }

  void run() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    for (Seat& seat : seats_) {
      const int status = pthread_create(&seat.thread, &attributes, &LocalRanks::enter, &seat);
      if (status != 0) {
        note(seat.rank, Error(ErrorKind::fault,
                              fmt::format("no thread for this rank of {}: {}; use fewer ranks, or raise the "
                                          "limit of processes (ulimit -u)",
                                          seats_.size(), std::strerror(status))));
        break;
      }
      seat.started = true;
    }
    pthread_attr_destroy(&attributes);
    for (Seat& seat : seats_)
      if (seat.started) pthread_join(seat.thread, nullptr);
    if (!causes_.empty()) throw cause();
  }

 private:
  // Parts, not an Error: copies of an exception share their text between threads.
  struct Cause {
    ErrorKind kind;
    std::string text;
    std::source_location place;
  };
  struct Seat {
    LocalRanks* ranks;
    int rank;
    std::unique_ptr<Communicator> world;
    pthread_t thread;
    bool started;
  };

  static void* enter(void* argument) {
    Seat& seat = *static_cast<Seat*>(argument);
    seat.ranks->run_rank(seat);
    return nullptr;
  }

  void run_rank(Seat& seat) {
    try {
      body_(*seat.world, seat.rank);
    } catch (const Error& error) {
      note(seat.rank, error);
    } catch (const std::exception& error) {
      note(seat.rank, Error(ErrorKind::fault, error.what()));
    } catch (...) {
      note(seat.rank, Error(ErrorKind::fault, "an exception that is no std::exception"));
    }
    seat.world
        .reset();  // after a failure has become everybody's cause: those who wait for this rank are told
  }

  void note(int rank, const Error& error) {
    const std::string text = fmt::format("rank {}: {}", rank, error.what());
    {
      std::lock_guard lock(mutex_);
      if (causes_.empty() || causes_.front().kind == ErrorKind::aborted) {
        if (causes_.empty() || error.kind() != ErrorKind::aborted)
          causes_ = {{error.kind(), text, error.location()}};
      } else if (error.kind() != ErrorKind::aborted && !told(error.what())) {
        causes_.push_back({error.kind(), text, error.location()});
      }
    }
    if (on_failure_) on_failure_(cause());
    world_.abort(text);
  }

  // What all ranks find wrong, or an earlier one quotes, is told once.
  bool told(std::string_view text) const {
    const std::string_view line = text.substr(0, text.find('\n'));
    return std::any_of(causes_.begin(), causes_.end(),
                       [&](const Cause& c) { return c.text.find(line) != std::string::npos; });
  }

  Error cause() {
    std::lock_guard lock(mutex_);
    const Cause& first = causes_.front();
    std::string text = (causes_.size() > 1 ? "first cause: " : "") + first.text;
    for (size_t i = 1; i < causes_.size(); ++i) text += "\nafter that, " + causes_[i].text;
    return Error(first.kind, text, first.place);
  }

  ThreadWorld world_;
  const std::function<void(Communicator&, int)>& body_;
  const std::function<void(const Error&)>& on_failure_;
  std::vector<Seat> seats_;
  std::mutex mutex_;
  std::vector<Cause> causes_;  // in their order; one of a follower only while there is no other
};

}  // namespace

void run_local_ranks(int size, const CommOptions& options,
                     const std::function<void(Communicator& world, int rank)>& body,
                     const std::function<void(const Error& cause)>& on_failure) {
  LocalRanks(size, options, body, on_failure).run();
}

}  // namespace triax
