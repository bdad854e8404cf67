#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_link.h"

namespace triax {

class ThreadGroup;

/// Why a call can't be finished.
struct Failure {
  ErrorKind kind;
  std::string reason;
  std::source_location place{};
};

/// One collective under way. Its work is a list of pieces (a few KB each, no two of them touching the same
/// bytes) that any waiting rank takes from `next`: the operation does not need any particular rank to wait
/// for it, so ranks may wait for their operations in different orders. A piece reads all its inputs into a
/// buffer in cache before it writes an output, so in-place operations need no barrier and no copy.
struct Collective {
  struct Part {  // of one rank
    bool posted = false;
    std::source_location place{};
    const char* in = nullptr;
    char* out = nullptr;
    DeviceMemory memory{};               // where these lie; without a device: on the host
    DeviceLink::Event ready;             // of the device: when `in` may be read and `out` written
    int color = 0;                       // split: in
    std::string group_name;              // split: in
    std::shared_ptr<ThreadGroup> group;  // split: out, with the rank in it
    int group_rank = 0;
  };
  CommCall call;  // of the rank that came first
  int first_rank = 0;
  std::vector<Part> parts;
  int posted = 0;
  int64_t elements = 0;  // of one rank's part of the work, in units of piece_bytes' dtype
  int64_t pieces_per_part = 0, pieces = 0;
  std::atomic<int64_t> next{0}, done{0};
  DeviceLink::Event done_on_device;  // set before `finished`
  Pending::Span span{};  // of the work: `begin` by who takes the first piece, `end` by who ends the last
  // Below: under the group's mutex.
  bool finished = false;
  std::optional<Failure> failure;
  std::condition_variable changed;
};

/// A message of which one side, or both, have come. Whoever comes second copies.
struct Message {
  bool is_send = false;  // which side came first
  CommCall call;         // of that side
  const void* in = nullptr;
  void* out = nullptr;
  DeviceLink::Event ready, done_on_device;  // as a collective's
  // Below: under the group's mutex.
  Pending::Span span{};  // of the copy
  bool matched = false, finished = false;
  std::optional<Failure> failure;
  std::condition_variable changed;
};

/// What the rank threads of one world share.
struct ThreadWorldState {
  CommOptions options;
  std::vector<std::shared_ptr<Recorder>> recorders;  // by world rank
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::string cause;                               // set before `aborted`
  std::vector<std::weak_ptr<ThreadGroup>> groups;  // to be woken

  Failure abort_failure(const std::source_location& place);
};

/// The state that the members of one group share. Thread-safe; each member calls with its own rank.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorldState> world, std::string name, std::vector<int> members);

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[rank]; }
  const std::vector<int>& members() const { return members_; }
  ThreadWorldState& world() { return *world_; }

  /// Enters a collective as `rank`. The last one to come does small work at once.
  std::shared_ptr<Collective> post(int rank, const CommCall& call, Collective::Part part);
  void wait(Collective& c, int rank, const CommCall& call);
  void abandon(Collective& c, int rank) noexcept;

  /// Enters one side of a message; null when it was done at once.
  std::shared_ptr<Message> post(bool is_send, int rank, int peer, const CommCall& call, void* buffer,
                                const DeviceMemory& memory);
  void wait(Message& m, int rank, const CommCall& call);
  void abandon(Message& m) noexcept;

  /// `rank` gives up its communicator; `failing` when an exception unwinds it.
  void leave(int rank, bool failing) noexcept;
  /// Every sleeping member looks around.
  void wake() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Member : char { present, left, failed };

  void work(Collective& c);
  void make_groups(Collective& c);
  void check_same(Collective& c, int rank, const CommCall& call);
  void finish(Collective& c);
  std::vector<int> missing(const Collective& c) const;
  std::string report(Lock& lock, int rank, const CommCall& call, const std::vector<int>& peers);
  // Throws, and leaves the failure in `failure` for those who come later.
  [[noreturn]] void give_up(std::optional<Failure>& failure, std::condition_variable& changed,
                            const Failure& why);
  std::optional<Failure> gone(int rank, const CommCall& call, const std::vector<int>& peers) const;

  std::shared_ptr<ThreadWorldState> world_;
  std::string name_;
  std::vector<int> members_;  // world ranks

  std::mutex mutex_;
  std::vector<Member> state_;
  std::map<uint64_t, std::shared_ptr<Collective>> collectives_;  // not all have come yet, by sequence
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages_;  // (from, to), one side
};

/// Does piece `index` of the work of `c`.
void run_piece(const Collective& c, int64_t index);
/// Sets the number of pieces from the call.
void plan_pieces(Collective& c);
/// Enqueues all the work of `c`, of `group` and with buffers in device memory, on the device of `rank`, whose
/// recorder times it.
void run_on_device(Collective& c, int rank, const std::string& group, Recorder& recorder);

}  // namespace triax
