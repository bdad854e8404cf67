#include "comm/watchdog.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/fuse.h"

namespace triax {
namespace {

using namespace std::chrono_literals;

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

/// False when it exists already, or can't be made.
bool make_new(const std::string& path, const std::string& content) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool written = write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  close(file);
  return written;
}

/// Whoever makes the file writes it a moment later.
std::optional<EndCause> read_cause(const std::string& path) {
  for (int tries = 0; tries < 50; ++tries) {
    std::ifstream in(path);
    const auto json = nlohmann::json::parse(in, nullptr, false);
    if (json.is_object())
      return EndCause{json.value("rank", 0), json.value("status", 1), json.value("text", std::string())};
    std::this_thread::sleep_for(20ms);
  }
  return std::nullopt;
}

}  // namespace

Watchdog::Watchdog(int ranks, WatchdogOptions options)
    : ranks_(ranks),
      options_(std::move(options)),
      period_(options_.limit > 0ms ? std::clamp<Clock::duration>(options_.limit / 60, 20ms, 2s) : 2s),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(int rank, std::shared_ptr<const Recorder> recorder) {
  const std::lock_guard lock(mutex_);
  seats_[rank] = {std::move(recorder), false};
}

void Watchdog::unwatch(int rank) {
  const std::lock_guard lock(mutex_);
  seats_[rank].ended = true;
}

void Watchdog::use_folder(const std::string& folder, const std::string& run) {
  const std::lock_guard lock(mutex_);
  folder_ = {folder, run};
}

EndCause Watchdog::claim(const EndCause& mine) {
  Folder folder;
  {
    const std::lock_guard lock(mutex_);
    if (first_) return *first_;
    first_ = mine;
    folder = folder_;
  }
  if (folder.dir.empty()) return mine;
  // Without the lock: a file system may take its time, or for ever.
  const nlohmann::json cause{{"rank", mine.rank}, {"status", mine.status}, {"text", mine.text}};
  const std::string end = folder.path("end");
  EndCause first = mine;
  if (!make_new(end, cause.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) && exists(end))
    first = read_cause(end).value_or(mine);
  make_new(folder.path("alarm"), "");
  const std::lock_guard lock(mutex_);
  first_ = first;
  return first;
}

std::string Watchdog::Folder::path(const char* kind, int64_t number) const {
  return fmt::format("{}/.{}-{}{}", dir, kind, run, number ? fmt::format("-{}", number) : "");
}

Watchdog::Folder Watchdog::folder() const {
  const std::lock_guard lock(mutex_);
  return folder_;
}

bool Watchdog::all_here() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(seats_.size()) == ranks_;
}

bool Watchdog::pause(std::chrono::milliseconds time) const {
  Lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return stop_; });
}

void Watchdog::run() {
  Lock lock(mutex_);
  while (!changed_.wait_for(lock, period_, [this] { return stop_; })) {
    lock.unlock();
    const bool goes_on = look();
    lock.lock();
    if (!goes_on) return;
  }
}

// False when the job has been ended.
bool Watchdog::look() {
  const Folder folder = this->folder();
  if (!folder.dir.empty() && exists(folder.path("alarm"))) {
    if (exists(folder.path("end"))) return follow_end(folder);
    if (exists(folder.path("inquiry", inquiry_ + 1))) return answer(folder);
  }
  // One reading for both: a process that is suspended after it sees no wait grow by that.
  const auto now = Clock::now();
  notice_suspension(now);
  return !overdue(now) || inquire(folder);
}

// Only a gap that matters beside the limit: a thread that a loaded machine runs late must not put off the
// end of a job that hangs. What questions and answers take counts as a gap, too: waits count anew after them
// anyway.
void Watchdog::notice_suspension(Clock::time_point now) {
  if (now - looked_at_ > period_ + options_.limit / 4) counts_from_ = now;
  looked_at_ = now;
}

bool Watchdog::overdue(Clock::time_point now) const {
  if (options_.limit == 0ms) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(seats_.begin(), seats_.end(), [&](const auto& seat) {
    const int64_t since = seat.second.recorder->position().inside_since;
    if (since == 0 || seat.second.ended) return false;
    return now - std::max(Clock::time_point(Clock::duration(since)), counts_from_) > options_.limit;
  });
}

std::vector<RankRecord> Watchdog::own_records(const Folder& folder) const {
  const std::lock_guard lock(mutex_);
  std::vector<RankRecord> records;
  for (const auto& [rank, seat] : seats_) {
    RankRecord r = take_record(*seat.recorder, rank, ranks_);
    r.run = folder.run;
    r.inquiry = inquiry_;
    if (seat.ended) r.words = "has ended its run";
    records.push_back(std::move(r));
  }
  return records;
}

// Writes what the ranks of this process say, as far as the folder lets it.
std::vector<RankRecord> Watchdog::tell(const Folder& folder) const {
  std::vector<RankRecord> records = own_records(folder);
  try {
    if (!folder.dir.empty())
      for (const RankRecord& r : records) write_record(folder.dir, r);
  } catch (const std::exception&) {  // the report matters more than the files
  }
  return records;
}

// The records of all ranks; those of which nothing is heard within the time are marked so.
std::vector<RankRecord> Watchdog::gather(const Folder& folder, const std::vector<RankRecord>& own) const {
  std::vector<RankRecord> all(static_cast<size_t>(ranks_));
  size_t heard = 0;
  const auto put = [&](RankRecord r) {
    RankRecord& place = all[static_cast<size_t>(r.rank)];
    place = std::move(r);
    ++heard;
  };
  for (int r = 0; r < ranks_; ++r) all[static_cast<size_t>(r)].answered = false;
  for (const RankRecord& r : own) put(r);
  const auto deadline = Clock::now() + options_.answer_time;
  while (heard < all.size() && !folder.dir.empty()) {
    for (int r = 0; r < ranks_; ++r) {
      if (all[static_cast<size_t>(r)].answered) continue;
      auto record = read_record(folder.dir, r);
      if (record && record->rank == r && record->run == folder.run && record->inquiry == inquiry_)
        put(*std::move(record));
    }
    if (heard == all.size() || Clock::now() > deadline || !pause(20ms)) break;
  }
  for (int r = 0; r < ranks_; ++r) {
    RankRecord& record = all[static_cast<size_t>(r)];
    record.rank = r;
    if (!record.answered && options_.words_on) record.words = options_.words_on(r);
  }
  return all;
}

bool Watchdog::inquire(const Folder& folder) {
  // Even when the folder's file system is what hangs.
  const Fuse fuse(patience(), [this] { end_job({}, gather({}, own_records({}))); });
  const bool asks_others = !folder.dir.empty() && !all_here();
  if (asks_others) {
    make_new(folder.path("alarm"), "");
    // Somebody else was faster: the next look sees it.
    if (!make_new(folder.path("inquiry", inquiry_ + 1), "") && exists(folder.path("inquiry", inquiry_ + 1)))
      return true;
  }
  ++inquiry_;
  const std::vector<RankRecord> records = gather(folder, tell(folder));
  counts_from_ = Clock::now();
  const HangReport report = explain_hang(records);
  const double limit = std::chrono::duration<double>(options_.limit).count();
  const bool moved = report.wait_seconds < limit;
  const bool explained = report.announced && report.phase_seconds < options_.phase_factor * limit;
  if (!moved && !explained) return end_job(folder, records);
  if (asks_others) make_new(folder.path("patience", inquiry_), "");
  if (explained && !moved && options_.warn)
    options_.warn(
        fmt::format("an operation takes longer than logging.watchdog_seconds: {:g}, but there is a "
                    "reason; the job goes on\n{}",
                    limit, report.text));
  return true;
}

bool Watchdog::answer(const Folder& folder) {
  const Fuse fuse(2 * patience(), [this] { end_job({}, gather({}, own_records({}))); });
  ++inquiry_;
  const std::vector<RankRecord> own = tell(folder);
  for (const auto deadline = Clock::now() + patience(); Clock::now() < deadline;) {
    if (exists(folder.path("end"))) return follow_end(folder);
    if (exists(folder.path("patience", inquiry_))) {
      counts_from_ = Clock::now();
      return true;
    }
    if (!pause(20ms)) return true;
  }
  // Whoever asked is gone, too.
  return end_job(folder, gather(folder, own));
}

// What a question may take, from asking to the word that follows.
std::chrono::milliseconds Watchdog::patience() const {
  return 2 * options_.answer_time + options_.end_time + 10ms * ranks_;
}

// Another process, or this one, has said that the job ends, and why: the launcher does it, or else we.
bool Watchdog::follow_end(const Folder& folder) {
  const auto cause = read_cause(folder.path("end"));
  if (pause(options_.end_time)) options_.end("", cause ? cause->status : 1);
  return false;
}

bool Watchdog::end_job(const Folder& folder, const std::vector<RankRecord>& records) {
  const HangReport report = explain_hang(records);
  std::string text = fmt::format(
      "the watchdog ends the job: an operation has taken longer than logging.watchdog_seconds: {:g}\n{}",
      std::chrono::duration<double>(options_.limit).count(), report.text);
  if (!folder.dir.empty())
    text += fmt::format("\nthe latest operations of every rank: {}/collectives-rank-*.jsonl", folder.dir);
  const int first = own_rank();
  const EndCause cause = folder.dir.empty() ? EndCause{first, 1, text} : claim({first, 1, text});
  if (cause.text != text) text = fmt::format("first cause: {}\nafter that, {}", cause.text, text);
  options_.end(text, cause.status);
  return false;
}

int Watchdog::own_rank() const {
  const std::lock_guard lock(mutex_);
  return seats_.empty() ? 0 : seats_.begin()->first;
}

}  // namespace triax
