#include "data/loader.h"

#include "core/error.h"

namespace triax {

BatchRows BatchRows::of_data_rank(int64_t global_batch, int data_rank, int data_ranks) {
  check(data_ranks >= 1 && data_rank >= 0 && data_rank < data_ranks && global_batch % data_ranks == 0,
        "rows of data rank {} of {} in a global batch of {}", data_rank, data_ranks, global_batch);
  const int64_t rows = global_batch / data_ranks;
  return {global_batch, data_rank * rows, rows};
}

int64_t Loader::bytes(const BatchRows& rows, int64_t sequence_length) {
  return 2 * rows.rows * (sequence_length + 1) * static_cast<int64_t>(sizeof(int32_t));
}

Loader::Loader(const SampleOrder& order, BatchRows rows) : order_(order), rows_(rows) {
  check(rows.rows >= 1 && rows.first_row >= 0 && rows.first_row + rows.rows <= rows.global_batch,
        "rows {}..{} of a global batch of {}", rows.first_row, rows.first_row + rows.rows, rows.global_batch);
  for (Batch& batch : batches_)
    batch.tokens.resize(static_cast<size_t>(rows.rows * (order.sequence_length() + 1)));
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<const int32_t> Loader::next(int64_t first_sample) {
  std::unique_lock lock(mutex_);
  const auto want = [&](int64_t first) {
    batches_[ahead_].first_sample = first;
    state_ = State::wanted;
    changed_.notify_all();
  };
  const auto settled = [&] { return state_ == State::idle || state_ == State::ready; };

  changed_.wait(lock, settled);
  if (state_ == State::idle || batches_[ahead_].first_sample != first_sample) {
    want(first_sample);
    changed_.wait(lock, settled);
  }
  Batch& batch = batches_[ahead_];
  state_ = State::idle;
  if (batch.error) std::rethrow_exception(batch.error);
  ahead_ = 1 - ahead_;
  want(first_sample + rows_.global_batch);
  return batch.tokens;
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || state_ == State::wanted; });
    if (stop_) return;
    state_ = State::reading;
    Batch& batch = batches_[ahead_];
    lock.unlock();
    fill(batch);
    lock.lock();
    state_ = State::ready;
    changed_.notify_all();
  }
}

// Runs without the lock: while the state is `reading`, the batch ahead is the thread's alone.
void Loader::fill(Batch& batch) {
  batch.error = nullptr;
  try {
    const int64_t width = order_.sequence_length() + 1;
    for (int64_t row = 0; row < rows_.rows; ++row) {
      if (const std::lock_guard lock(mutex_); stop_) return;
      order_.read_sample(batch.first_sample + rows_.first_row + row, batch.tokens.data() + row * width);
    }
  } catch (...) {
    batch.error = std::current_exception();
  }
}

}  // namespace triax
