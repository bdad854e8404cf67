#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/hang_report.h"

namespace triax {

/// What the ranks of a job that is ending by a failure agree on without messages: who was first.
struct EndCause {
  int rank = 0;
  int status = 1;    ///< the exit status of the job
  std::string text;  ///< "rank 3: ..."
};

struct WatchdogOptions {
  /// Of one wait inside of communication; 0: waits are not watched.
  std::chrono::milliseconds limit{0};
  /// A rank in an announced phase (Recorder::set_phase) may keep others waiting for this many times the
  /// limit.
  int phase_factor = 10;
  /// How long ranks may take to tell where they are.
  std::chrono::milliseconds answer_time{5000};
  /// How long processes that have heard of another's failure give the launcher to end them.
  std::chrono::milliseconds end_time{5000};
  /// What this process knows of a rank that gives no answer; may be null.
  std::function<std::string(int rank)> words_on;
  /// Tells rank 0's console that a wait is long but explained.
  std::function<void(const std::string& text)> warn;
  /// Ends the job, at once and with `status`; `report` is empty where another process has told it. Called by
  /// the watchdog's thread.
  std::function<void(const std::string& report, int status)> end;
};

/// A thread that ends a job in which a rank has waited in one operation for longer than a limit. It works
/// while all the others are stuck, in messages or inside of MPI, which it never calls. It asks all ranks
/// where they are, writes what each one says into the run's folder (rank_record.h), tells on the console
/// which rank is missing from which operation, and ends the job.
///
/// Waits count while the watchdog itself runs. When it finds that it has not for more than a quarter of the
/// limit, its process was suspended (SIGSTOP, a frozen container, a debugger), and most likely all of the
/// job was: waits count anew. A rank that alone is suspended is found by the watchdogs of the others.
///
/// Processes reach each other through files in the run's folder, which they share anyway: messages are what
/// does not work. Names carry the start's `run`, so that nothing of an earlier start is taken for an answer:
///   .inquiry-<run>-<n>  made by the one that asks first; everyone then writes its record number n
///   .patience-<run>-<n> the one that asked has found a good reason to go on
///   .end-<run>          the job ends: who was first, with what status and why (also on other failures)
class Watchdog {
 public:
  Watchdog(int ranks, WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Watches a rank of this process, until unwatch().
  void watch(int rank, std::shared_ptr<const Recorder> recorder);
  /// The rank has ended its run: it is not waited for any more and tells so.
  void unwatch(int rank);
  /// From now on other processes are asked and answered through this folder. Every rank calls it.
  void use_folder(const std::string& folder, const std::string& run);

  /// Of a failure of this process: notes it as the job's first cause, unless there is one already. Returns
  /// the first cause.
  EndCause claim(const EndCause& mine);

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  struct Seat {
    std::shared_ptr<const Recorder> recorder;
    bool ended = false;
  };
  struct Folder {
    std::string dir, run;
    /// ".<kind>-<run>" or, with a number, ".<kind>-<run>-<number>".
    std::string path(const char* kind, int64_t number = 0) const;
  };

  void run();
  // These end with false when the job has been ended.
  bool look();
  void notice_suspension(Clock::time_point now);
  bool inquire(const Folder& folder);
  bool answer(const Folder& folder);
  bool follow_end(const Folder& folder);
  bool end_job(const Folder& folder, const std::vector<RankRecord>& records);

  bool overdue(Clock::time_point now) const;
  std::vector<RankRecord> own_records(const Folder& folder) const;
  std::vector<RankRecord> tell(const Folder& folder) const;
  std::vector<RankRecord> gather(const Folder& folder, const std::vector<RankRecord>& own) const;
  std::chrono::milliseconds patience() const;
  /// False when the watchdog is being stopped.
  bool pause(std::chrono::milliseconds time) const;
  bool all_here() const;
  int own_rank() const;
  Folder folder() const;

  const int ranks_;
  const WatchdogOptions options_;
  const Clock::duration period_;  // between two looks

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stop_ = false;
  std::map<int, Seat> seats_;
  Folder folder_;
  std::optional<EndCause> first_;

  // The thread's own, and its fuses'.
  std::atomic<int64_t> inquiry_ = 0;  // the last one that was asked or answered
  Clock::time_point counts_from_{};   // waits count anew from there
  Clock::time_point looked_at_ = Clock::now();
  std::thread thread_;
};

}  // namespace triax
