#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "comm/recorder.h"
#include "core/tensor.h"

namespace triax {

enum class ReduceOp { sum, max };
struct DeviceMemory;
struct DeviceMessages;

/// A started operation. wait() returns when the operation is done for this rank: its input may be changed and
/// its output read. The destructor waits too, so that a buffer never outlives its message; it swallows
/// nothing but Error(aborted), and throws what else wait() throws. While another exception unwinds the stack
/// the destructor does not wait for peers but takes the operation back, so that the cause gets out.
///
/// Pending operations may be waited for in any order, another one on each rank: whoever waits does all the
/// work of its operation that nobody does yet, so no order of waits can deadlock as long as all members
/// start the same operations in the same order. Collectives make progress only inside calls and waits.
class Pending {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point begin, end;
  };
  /// What a backend does to finish; a null state is an operation that was done when it was started.
  struct State {
    virtual ~State() = default;
    virtual void wait() = 0;              ///< throws on failure, abort and time-out
    virtual void abandon() noexcept = 0;  ///< returns when the buffers will not be touched any more
    /// After wait(): when bytes began to move for it, and when the last one had; for the record.
    virtual Span work() const = 0;
    /// After wait(): a device is still at it, ahead of what is enqueued from now on; whoever made the state
    /// tells the recorder when it is done.
    virtual bool runs_on() const { return false; }
  };
  Pending() = default;
  explicit Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}
  Pending(Pending&&) = default;
  Pending& operator=(Pending&& other);  ///< waits for the operation it held before
  ~Pending() noexcept(false);
  void wait();

 private:
  friend class Communicator;
  std::unique_ptr<State> state_;
  std::shared_ptr<Recorder> recorder_;  // told when the operation is done; null without a state
  uint64_t ticket_ = 0;
  std::pair<std::string, CommOp> operation_;  // for its times
  Clock::time_point started_{};
  double exposed_before_ = 0;  // of all operations, when this one had been started
};

/// The members of one group seen from one of them: check, record, dispatch. All members call the same
/// operations in the same order. Tensors lie in the host's memory, but for groups of on_device()
/// (device_link.h). Every call starts its operation and returns it as Pending; buffers belong to
/// the caller and must stay alive and untouched until wait(). A collective is in place when its pointers are
/// equal. Reductions on self, threads and mpi add in rank order whatever size, position or bucket, in fp32
/// for f32 and bf16 (rounded once) and exactly for integers; on nccl so do all but sums of f32 and f64, and
/// those with DeviceMessages::rank_order. Errors: dtype or size that do not fit (named
/// with the call's place), a peer's failure (Error aborted), a time-out (which rank waits in which operation
/// for whom).
class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }  ///< within this group
  int size() const { return group_->size; }
  const std::string& name() const { return group_->name; }
  /// Ranks of the world, by rank in this group; empty in a plan.
  const std::vector<int>& members() const { return group_->members; }
  /// How tensors of a device travel in a group of on_device(), and why so: "NCCL 2.28.9", "host memory: ...";
  /// empty where nothing needs to be said.
  const std::string& transport() const { return transport_; }

  /// out[i] = reduction over ranks of in[i]; sizes equal.
  Pending all_reduce(const Tensor& in, const Tensor& out, ReduceOp op,
                     std::source_location place = std::source_location::current());
  /// out = the ranks' inputs one behind the other; out has size() times the elements. In place: in is the
  /// rank's part of out.
  Pending all_gather(const Tensor& in, const Tensor& out,
                     std::source_location place = std::source_location::current());
  /// out = rank's part of the reduction; in has size() times the elements. In place: out is the rank's part
  /// of in.
  Pending reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op,
                         std::source_location place = std::source_location::current());
  /// Everyone gets root's content.
  Pending broadcast(const Tensor& inout, int root,
                    std::source_location place = std::source_location::current());
  /// Point to point. Messages between two ranks of a group arrive in the order of their sends. A send may
  /// wait for its receive. Over NCCL along DeviceMessages::route alone.
  Pending send(const Tensor& in, int to, std::source_location place = std::source_location::current());
  Pending recv(const Tensor& out, int from, std::source_location place = std::source_location::current());
  /// Returns when all have called it.
  void barrier(std::source_location place = std::source_location::current());

  /// Splits like MPI_Comm_split: members with the same color (>= 0) form a group, in the order of their rank
  /// here; a negative color gets null. Collective. `name` goes into the ledger and into error messages.
  std::unique_ptr<Communicator> split(int color, std::string name,
                                      std::source_location place = std::source_location::current());

  /// While it lives, the group's operations take tensors of the host's memory, whatever on_device() has said.
  /// As every other call: on all members alike.
  class HostTensors {
   public:
    explicit HostTensors(Communicator& group) : group_(&group) { ++group_->host_tensors_; }
    ~HostTensors() { --group_->host_tensors_; }
    HostTensors(const HostTensors&) = delete;
    HostTensors& operator=(const HostTensors&) = delete;

   private:
    Communicator* group_;
  };

  Recorder& recorder() { return *recorder_; }
  /// The rank's recorder, for groups that are made beside this one (make_null_communicator).
  const std::shared_ptr<Recorder>& shared_recorder() const { return recorder_; }

 protected:
  Communicator(int rank, CommGroup group, std::shared_ptr<Recorder> recorder);
  /// The same place in the same group as `before`, which it stands for from now on: its calls count on.
  Communicator(const Communicator& before, std::string transport);

  // What a backend implements; sizes and dtypes have been checked. `call` is what was recorded.
  virtual Pending do_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) = 0;
  virtual Pending do_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) = 0;
  virtual Pending do_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out,
                                    ReduceOp op) = 0;
  virtual Pending do_broadcast(const CommCall& call, const Tensor& inout, int root) = 0;
  virtual Pending do_send(const CommCall& call, const Tensor& in, int to) = 0;
  virtual Pending do_recv(const CommCall& call, const Tensor& out, int from) = 0;
  virtual void do_barrier(const CommCall& call) = 0;
  virtual std::unique_ptr<Communicator> do_split(const CommCall& call, int color, std::string name) = 0;
  /// From now on tensors lie in the memory of a device (on_device()); false where that can't be.
  virtual bool use_device(const DeviceMemory&) { return false; }
  bool takes_host_tensors() const { return host_tensors_ > 0; }

  std::shared_ptr<Recorder> recorder_;

 private:
  friend class OverHost;
  friend std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> group,
                                                 const DeviceMemory& memory, const DeviceMessages& messages);
  class Started;
  Started start(CommOp op, DType dtype, int64_t count, int detail, const std::source_location& place);
  Pending track(Pending pending, Started& started);
  void require(bool condition, CommOp op, const std::source_location& place, const std::string& what) const;
  void require_peer(CommOp op, int peer, const std::source_location& place) const;

  int rank_;
  int host_tensors_ = 0;  // HostTensors that live
  std::shared_ptr<const CommGroup> group_;
  std::string transport_;
  uint64_t collectives_ = 0;                             // started in this group so far
  std::map<std::pair<CommOp, int>, uint64_t> messages_;  // started per direction and peer
};

/// What a rank's communicators share: how long to wait, and whether to cross-check the order of calls.
inline constexpr std::chrono::milliseconds no_timeout = std::chrono::hours(24 * 36500);
struct CommOptions {
  /// Of one wait, told by the rank that waits; `no_timeout` where a Watchdog looks after that.
  std::chrono::milliseconds timeout{600000};
  /// debug.check_collectives: compare operation, dtype, size and reduction or root across the group before
  /// each collective and report a difference by rank and place. Ranks of one host always do.
  bool check_order = false;
  /// Processes that share a host exchange through memory that they share, not by messages of MPI.
  bool host_memory = true;
};

/// One rank, alone.
std::unique_ptr<Communicator> make_self_communicator(const CommOptions& options);

/// Any rank of any size that computes and moves nothing: calls are checked and recorded (planning). Nobody
/// else is there to tell its color, so split() is refused (but for one rank): make each group directly, with
/// its name and the recorder of the rank (null: a new one).
std::unique_ptr<Communicator> make_null_communicator(int rank, int size, const CommOptions& options,
                                                     std::string name = "world",
                                                     std::shared_ptr<Recorder> recorder = nullptr);

/// Ranks that are threads of this process. Made once; each rank thread takes its communicator. abort() may be
/// called from any thread: every waiting rank wakes and throws Error(aborted), now and at every later call.
class ThreadWorld {
 public:
  ThreadWorld(int size, const CommOptions& options);
  ~ThreadWorld();
  std::unique_ptr<Communicator> communicator(int rank);
  void abort(const std::string& cause);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Every process of mpirun or srun is a rank; opens the triax_mpi library beside the program. Errors say what
/// is missing. All calls, waits included, come from the thread that made the world (MPI_THREAD_FUNNELED).
/// After a failure every later call throws Error(aborted); the runner then calls abort(), because the other
/// processes do not notice by themselves.
struct MpiWorld {
  virtual ~MpiWorld() = default;  ///< finalises MPI, after all communicators are gone
  virtual std::unique_ptr<Communicator> communicator() = 0;
  virtual int local_rank() const = 0;  ///< rank among those that share this host
  virtual int local_size() const = 0;
  /// What this process knows of a rank that does not answer: the state of its process and the call that it
  /// started last, where it is on this host. From any thread, without MPI.
  virtual std::string words_on(int rank) const = 0;
  /// SIGKILLs the other ranks of this host, or only those that are stopped and can't end by themselves: for a
  /// process that ends the job without MPI. From any thread.
  virtual void kill_host(bool all) noexcept = 0;
  /// Ends all processes of the job, this one included.
  [[noreturn]] virtual void abort(int status) = 0;
};
/// True for a process of mpirun or srun with MPI, with its *rank and *size; not for Slurm's batch script or
/// step of one task. Throws Error(usage) where PMI_RANK or PMIX_RANK is set, but nothing tells the size.
bool started_by_mpi(int* rank, int* size);
std::unique_ptr<MpiWorld> make_mpi_world(const CommOptions& options);

}  // namespace triax
