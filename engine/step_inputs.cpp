#include "engine/step_inputs.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace triax {

StepInputs::StepInputs(Device& device, const Sizes& sizes, bool ahead)
    : device_(&device), device_block_("inputs", device), host_blocks_("inputs", device, Arena::Place::host) {
  const Shape tokens{sizes.micro_batches, sizes.tokens};
  const int ids = device_block_.declare("ids", tokens, DType::i32),
            targets = device_block_.declare("targets", tokens, DType::i32),
            votes = device_block_.declare("votes", {sizes.votes}, DType::i64),
            dropout = device_block_.declare("domains of dropout", {sizes.dropout_sites}, DType::i64),
            slots = device_block_.declare("slots", sizes.slots > 0 ? tokens : Shape{0}, DType::i32),
            slot_ids = device_block_.declare("ids of the slots", {sizes.slots}, DType::i32),
            scalars = device_block_.declare("scalars of the update", {sizeof(UpdateScalars)}, DType::u8);
  device_block_.commit();
  batch_ = {device_block_[ids], device_block_[targets]};
  if (sizes.slots > 0) {
    batch_.slots = device_block_[slots];
    batch_.slot_ids = device_block_[slot_ids];
    slots_.emplace(sizes.first_row, sizes.rows);
  }
  votes_ = device_block_[votes];
  dropout_ = device_block_[dropout];
  scalars_ = device_block_[scalars];
  // The last tensor, up to what the device decides by itself.
  upload_bytes_ = device_block_.placement().entries().back().offset + offsetof(UpdateScalars, grad_scale);
  if (!ahead) return;
  const auto block = static_cast<int64_t>(device_block_.bytes());
  const int blocks = host_blocks_.declare("inputs of two steps", {2, block}, DType::u8);
  host_blocks_.commit();
  blocks_ = host_blocks_[blocks];
  for (int b = 0; b < 2; ++b) copied_.push_back(device.make_event());
}

char* StepInputs::host(int block) {
  if (copied_.empty()) return base();
  copied_[static_cast<size_t>(block)]->wait();
  return static_cast<char*>(blocks_.rows(block, 1).raw());
}

void StepInputs::load_batch(const int32_t* rows, int64_t sequence) {
  if (!copied_.empty()) current_ = 1 - current_;
  const int64_t count = batch_.ids.numel() / sequence;
  for (const auto& [tensor, shift] : {std::pair(batch_.ids, 0), std::pair(batch_.targets, 1)}) {
    int32_t* to = on_host(current_, tensor.as<int32_t>());
    for (int64_t r = 0; r < count; ++r)
      std::copy_n(rows + r * (sequence + 1) + shift, sequence, to + r * sequence);
  }
  if (slots_)
    slots_->assign(on_host(current_, batch_.ids.i32()), batch_.ids.numel(),
                   on_host(current_, batch_.slots.as<int32_t>()),
                   on_host(current_, batch_.slot_ids.as<int32_t>()), batch_.slot_ids.numel());
}

void StepInputs::upload(int block) {
  if (copied_.empty()) return;
  device_->write_later(base(), blocks_.rows(block, 1).raw(), upload_bytes_);
  copied_[static_cast<size_t>(block)]->record();
}

}  // namespace triax
