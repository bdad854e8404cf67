#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/board.h"
#include "comm/mpi/host_group.h"
#include "comm/mpi/requests.h"

namespace triax {

class Engine;

/// One MPI communicator of ours; freed with its last user.
struct MpiGroup {
  MpiGroup(std::shared_ptr<Engine> e, MPI_Comm c, std::string n);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  std::shared_ptr<Engine> engine;
  MPI_Comm comm;
  std::string name;
  int rank = 0, size = 1;
  std::vector<int> world_ranks;
  std::unique_ptr<HostGroup> host;  ///< null: all goes by messages of MPI
};

/// An operation under way: a number of steps, each of which can be done when what those before it have asked
/// for has come.
class Operation {
 public:
  Operation(std::shared_ptr<MpiGroup> g, const CommCall& c) : group_(std::move(g)), call_(c) {}
  virtual ~Operation() = default;
  /// Goes as far as it can without waiting; true when the operation is done.
  bool advance();
  const CommCall& call() const { return call_; }
  MpiGroup& group() { return *group_; }
  /// The ranks that the operation waits for now.
  virtual std::vector<int> peers() = 0;
  /// Whether those ring this rank's bell (Board) when what it waits for has come; otherwise it must look.
  virtual bool rings() const = 0;
  /// From its making to when advance() saw its end.
  Pending::Span span() const { return span_; }

 protected:
  /// Whether the next step can be done.
  virtual bool ready() = 0;
  /// Does step `step` = 0, 1, ...; false when that was the last one.
  virtual bool post(int step) = 0;
  int rank() const { return group_->rank; }
  int size() const { return group_->size; }

 private:
  std::shared_ptr<MpiGroup> group_;
  CommCall call_;
  int step_ = 0;
  Pending::Span span_{Pending::Clock::now(), {}};
};

/// One whose steps post messages of MPI; the next step follows when these are done.
class MessageOperation : public Operation {
 public:
  using Operation::Operation;
  std::vector<int> peers() override { return requests_.peers(); }
  bool rings() const override { return false; }

 protected:
  bool ready() override { return requests_.test(); }
  /// A tag of this operation that no other one under way in the group uses: MPI keeps messages of equal tags
  /// in order, but operations may advance in different orders on the two sides.
  int tag(int kind) const { return 1 + 4 * static_cast<int>(call().sequence % 8000) + kind; }
  void send(const void* buffer, size_t bytes, int to, int tag) {
    requests_.send(group().comm, buffer, bytes, to, tag);
  }
  void recv(void* buffer, size_t bytes, int from, int tag) {
    requests_.recv(group().comm, buffer, bytes, from, tag);
  }

 private:
  Requests requests_;
};

/// All operations of this process that are under way. Waiting for one advances all of them, so that ranks may
/// wait for their operations in different orders. For one thread, the one that started MPI.
class Engine {
 public:
  /// `host` is the communicator of the ranks that share this host; collective over them.
  Engine(const CommOptions& options, MPI_Comm host) : options_(options), board_(host) {}
  const CommOptions& options() const { return options_; }

  /// Starts an operation and returns it, or null when it is done already.
  std::shared_ptr<Operation> start(std::shared_ptr<Operation> operation);
  /// Returns when the operation is done. Throws a fault after CommOptions::timeout.
  void wait(Operation& operation);
  /// Nothing more is done in this process: an exception has left operations unfinished.
  void abandon(const std::string& cause) noexcept;
  bool failed() const { return !cause_.empty(); }

  Board& board() { return board_; }

  /// Memory for incoming pieces, used again by later operations.
  std::vector<char> take_staging(size_t bytes);
  void give_staging(std::vector<char> staging);

 private:
  void poll();
  void rest(std::chrono::nanoseconds waited, std::chrono::nanoseconds silent, uint32_t heard);
  std::string report(Operation& operation);

  CommOptions options_;
  Board board_;
  std::list<std::shared_ptr<Operation>> active_;
  std::vector<std::vector<char>> staging_;
  std::string cause_;  // of the first failure; empty while there is none
};

}  // namespace triax
