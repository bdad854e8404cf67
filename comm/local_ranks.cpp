#include "comm/local_ranks.h"

#include <pthread.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace triax {
namespace {

// Enough for deep call chains and reduction buffers; untouched pages of it cost nothing.
constexpr size_t stack_bytes = 8 << 20;

/// The ranks of one run and the first thing that went wrong.
class LocalRanks {
 public:
  LocalRanks(int size, const CommOptions& options, const std::function<void(Communicator&, int)>& body)
      : world_(size, options), body_(body) {
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
    if (first_) throw Error(first_->kind, first_->text, first_->place);
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
      const bool better =
          !first_ || (first_->kind == ErrorKind::aborted && error.kind() != ErrorKind::aborted);
      if (better) first_ = Cause{error.kind(), text, error.location()};
    }
    world_.abort(text);
  }

  ThreadWorld world_;
  const std::function<void(Communicator&, int)>& body_;
  std::vector<Seat> seats_;
  std::mutex mutex_;
  std::optional<Cause> first_;
};

}  // namespace

void run_local_ranks(int size, const CommOptions& options,
                     const std::function<void(Communicator& world, int rank)>& body) {
  LocalRanks(size, options, body).run();
}

}  // namespace triax
