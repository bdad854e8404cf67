#pragma once

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace triax {

enum class CommOp { all_reduce, all_gather, reduce_scatter, broadcast, send, recv, barrier };
std::string_view name_of(CommOp op);

/// One rank's record of its communication, shared by all its communicators (one thread): the byte ledger and
/// the ring buffer of the latest calls that hang reports and order checks use.
class Recorder {
 public:
  struct Entry {
    int64_t calls = 0;
    /// Payload that this rank sends, by the ring convention: all-reduce of S bytes over n is 2 (n-1)/n S,
    /// all-gather and reduce-scatter (n-1)/n of the full size, broadcast (n-1)/n S, send S, recv and barrier
    /// 0. Kept as a numerator over n so that it is exact.
    double bytes = 0;
  };
  struct Call {
    std::string group;
    CommOp op;
    DType dtype;
    int64_t count;      ///< elements of the larger buffer
    uint64_t sequence;  ///< number of this call in its group, from 0
    std::source_location place;
    bool done;
  };

  /// (group, operation) -> totals since the last clear().
  const std::map<std::pair<std::string, CommOp>, Entry>& ledger() const { return ledger_; }
  void clear() { ledger_.clear(); }
  /// The latest calls, oldest first (at most 256).
  std::vector<Call> recent() const;

  /// Called by Communicator.
  uint64_t begin(const std::string& group, int group_size, CommOp op, DType dtype, int64_t count,
                 std::source_location place);

 private:
  std::map<std::pair<std::string, CommOp>, Entry> ledger_;
  std::vector<Call> ring_;
  uint64_t next_ = 0;
  std::map<std::string, uint64_t> sequence_;
};

}  // namespace triax
