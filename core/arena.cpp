#include "core/arena.h"

#include <algorithm>

namespace triax {

int Placement::add(std::string name, Shape shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  entries_.push_back({std::move(name), shape, dtype, bytes_, bytes});
  bytes_ += (bytes + alignment - 1) / alignment * alignment;
  return static_cast<int>(entries_.size()) - 1;
}

Tensor Placement::at(void* base, int index) const {
  const Entry& e = entries_.at(static_cast<size_t>(index));
  return Tensor(static_cast<char*>(base) + e.offset, e.dtype, e.shape);
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
