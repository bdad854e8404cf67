#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "data/sampler.h"

namespace triax {

/// The rows of a step's global batch that one data rank works on: data rank d of D takes rows
/// [d G / D, (d + 1) G / D) of the G samples, in sample order; micro-batch k of size b takes rows k b to
/// (k + 1) b of those. All tensor ranks of a data rank read the same rows.
struct BatchRows {
  int64_t global_batch;
  int64_t first_row;
  int64_t rows;
  static BatchRows of_data_rank(int64_t global_batch, int data_rank, int data_ranks);
};

/// Prepares the next step's rows on a thread of its own while the current step computes. Two batches are
/// held. The SampleOrder belongs to the caller and must outlive the loader.
class Loader {
 public:
  Loader(const SampleOrder& order, BatchRows rows);
  /// Stops the thread; at most the row that is being read is finished.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Tokens [rows, sequence_length + 1] of the step whose global batch starts at sample `first_sample`
  /// (= consumed samples before the step), valid until the next call. Waits for the thread, and starts it on
  /// the step after this one; any other `first_sample` is served as well, only not ahead of time. An
  /// exception met while reading this step's rows is rethrown here, others are not.
  std::span<const int32_t> next(int64_t first_sample);

  /// Memory that a loader of these rows holds.
  static int64_t bytes(const BatchRows& rows, int64_t sequence_length);

 private:
  struct Batch {
    std::vector<int32_t> tokens;
    int64_t first_sample = -1;
    std::exception_ptr error;
  };
  enum class State { idle, wanted, reading, ready };

  void work();
  void fill(Batch& batch);

  const SampleOrder& order_;
  const BatchRows rows_;
  std::array<Batch, 2> batches_;
  int ahead_ = 0;  // the batch that belongs to the thread; the other one is the caller's
  State state_ = State::idle;
  bool stop_ = false;
  std::mutex mutex_;  // guards ahead_, state_, stop_, and first_sample of the batch ahead
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace triax
