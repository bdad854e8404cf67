#include "core/arena.h"

#include <algorithm>

namespace triax {

namespace {

size_t aligned(size_t bytes) {
  return (bytes + Placement::alignment - 1) / Placement::alignment * Placement::alignment;
}

}  // namespace

int Placement::add(std::string name, Shape shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  const bool lent = lent_end_ > 0 && lent_at_ + bytes <= lent_end_;
  size_t& at = lent ? lent_at_ : bytes_;
  entries_.push_back({std::move(name), shape, dtype, at, bytes, lent});
  at += aligned(bytes);
  return static_cast<int>(entries_.size()) - 1;
}

void Placement::lend(size_t begin, size_t end) {
  lent_at_ = std::max(lent_at_, aligned(begin));
  lent_end_ = end;
}

size_t Placement::lent_bytes() const {
  size_t sum = 0;
  for (const Entry& e : entries_)
    if (e.lent) sum += aligned(e.bytes);
  return sum;
}

Tensor Placement::at(void* base, int index, void* lent) const {
  const Entry& e = entries_.at(static_cast<size_t>(index));
  return Tensor(static_cast<char*>(e.lent ? lent : base) + e.offset, e.dtype, e.shape);
}

Arena::~Arena() {
  if (!committed_) return;
  if (place_ == Place::host)
    device_->deallocate_host(base_, bytes());
  else
    device_->deallocate(base_, bytes());
}

int Arena::declare(std::string name, Shape shape, DType dtype) {
  check(!committed_, "arena {}: {} was declared after the arena was committed", name_, name);
  return placement_.add(std::move(name), shape, dtype);
}

void Arena::commit() {
  check(!committed_, "arena {} was committed twice", name_);
  auto largest = std::max_element(placement_.entries().begin(), placement_.entries().end(),
                                  [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  const std::string purpose =
      largest == placement_.entries().end()
          ? name_
          : fmt::format("arena {} (its largest tensor is {}, {} x {}, {} bytes)", name_, largest->name,
                        to_string(largest->shape), name_of(largest->dtype), largest->bytes);
  base_ =
      place_ == Place::host ? device_->allocate_host(bytes(), purpose) : device_->allocate(bytes(), purpose);
  committed_ = true;
}

Tensor Arena::operator[](int index) const {
  check(committed_, "arena {} was used before it was committed", name_);
  return placement_.at(base_, index);
}

}  // namespace triax
