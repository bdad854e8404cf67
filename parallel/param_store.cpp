#include "parallel/param_store.h"

#include <algorithm>
#include <utility>

#include "core/bf16.h"
#include "core/rng.h"

namespace triax {

namespace {

constexpr int64_t line = 16;             // fp32 elements of a cache line
constexpr int64_t host_block = 1 << 18;  // elements that the host has at a time

int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

ParamStore::ParamStore(const Grid& grid, int rank, Device& device, int zero_shards, int64_t bucket_elements,
                       DType dtype)
    : grid_(&grid),
      rank_(rank),
      device_(&device),
      zero_shards_(zero_shards),
      bucket_elements_(bucket_elements),
      dtype_(dtype),
      weights_("weights", device),
      grads_("gradients", device),
      tied_("tied gradients", device) {}

int ParamStore::declare(std::vector<ParamSpec> side_by_side, bool by_products) {
  check(!weights_.committed(), "{} was declared after the parameters were committed",
        side_by_side.at(0).name);
  Group group{static_cast<int>(entries_.size()), static_cast<int>(side_by_side.size()), {}};
  group.by_products = by_products;
  int64_t at = elements_;
  for (ParamSpec& spec : side_by_side) {
    Entry entry{localise(spec, *grid_, rank_)};
    entry.offset = at;
    entry.counted = entry.copy == 0;
    if (spec.tied) {
      check(side_by_side.size() == 1, "{}: a tied parameter is declared alone", spec.name);
      entry.counted = false;
      for (size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].spec.name == spec.name) entry.primary = static_cast<int>(i);
    }
    at += entry.memory.numel();
    if (group.shape.rank() == 0) {
      group.shape = entry.memory;
    } else {
      check(group.shape.rank() < 2 || group.shape[1] == entry.memory[1], "{} does not fit beside {}",
            spec.name, entries_.back().spec.name);
      group.shape[0] += entry.memory[0];
    }
    entries_.push_back(std::move(entry));
  }
  Entry& only = entries_.back();
  if (only.primary >= 0) {  // one weight, a second gradient
    group.offset = only.offset = entries_[static_cast<size_t>(only.primary)].offset;
    group.in_tied = true;
    group.tied_index = tied_.declare(only.spec.name, only.memory, DType::f32);
  } else {
    group.offset = elements_;
    elements_ = round_up(at, line);
    if (elements_ - bucket_begin_ >= bucket_elements_) close_bucket();
  }
  groups_.push_back(group);
  return static_cast<int>(groups_.size()) - 1;
}

void ParamStore::close_bucket() {
  elements_ = bucket_begin_ + round_up(elements_ - bucket_begin_, line * zero_shards_);
  if (elements_ > bucket_begin_) buckets_.push_back({bucket_begin_, elements_});
  bucket_begin_ = elements_;
}

void ParamStore::commit(bool gradients) {
  close_bucket();
  weights_.declare("all weights", {elements_}, dtype_);
  weights_.commit();
  if (!gradients) return;
  grads_.declare("all gradients", {elements_}, DType::f32);
  grads_.commit();
  tied_.commit();
}

void ParamStore::initialise(uint64_t seed) {
  if (device_->kind() == DeviceKind::none) return;
  for (const Entry& entry : entries_) {
    if (entry.primary >= 0) continue;
    const int64_t n = entry.box.numel();
    if (dtype_ == DType::f32 && device_->kind() == DeviceKind::cpu) {
      initial_values(entry, seed, 0, n, weights().f32() + entry.offset);
      continue;
    }
    std::vector<float> part(static_cast<size_t>(std::min(n, host_block)));
    for (int64_t begin = 0; begin < n; begin += host_block) {
      const int64_t end = std::min(n, begin + host_block);
      initial_values(entry, seed, begin, end, part.data());
      set_weights(entry.offset + begin, end - begin, part.data());
    }
  }
}

void ParamStore::set_weights(int64_t first, int64_t count, const float* values) {
  const Tensor out = weights().rows(first, count);
  if (dtype_ == DType::f32) {
    device_->write(out.raw(), values, out.bytes());
    return;
  }
  std::vector<bf16> rounded(static_cast<size_t>(std::min(count, host_block)));
  for (int64_t begin = 0; begin < count; begin += host_block) {
    const int64_t n = std::min(host_block, count - begin);
    std::transform(values + begin, values + begin + n, rounded.begin(),
                   [](float x) { return round_bf16(x); });
    device_->write(out.as<bf16>() + begin, rounded.data(), static_cast<size_t>(n) * sizeof(bf16));
  }
}

void ParamStore::initial_values(const Entry& entry, uint64_t seed, int64_t begin, int64_t end,
                                float* out) const {
  const Init& init = entry.spec.init;
  if (init.kind != Init::Kind::normal) {
    std::fill_n(out, end - begin, init.kind == Init::Kind::ones ? 1.0F : 0.0F);
    return;
  }
  if (begin >= end) return;
  const RandomStream stream(seed, entry.spec.name);
  const Box all = whole(entry.spec.global);
  const int rank = entry.box.extent.rank();
  check(rank == 1 || rank == 2, "{}: initial values of {} dimensions", entry.spec.name, rank);
  const int64_t columns = rank == 2 ? entry.box.extent[1] : entry.box.numel();
  const int64_t first = begin / columns, rows = (end + columns - 1) / columns - first;
  device_->threads().parallel_for(rows, 16, [&](int64_t from, int64_t to) {
    for (int64_t row = first + from; row < first + to; ++row) {
      const int64_t left = std::max(begin, row * columns), right = std::min(end, (row + 1) * columns);
      Box rest = entry.box;
      if (rank == 2) rest.offset[0] += row;
      rest.offset[rank - 1] += left - row * columns;
      stream.normal(static_cast<uint64_t>(index_within(all, rest)), right - left, 0.0F, init.stddev,
                    out + (left - begin));
    }
  });
}

Tensor ParamStore::weight(int group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  if (!arriving_.empty()) await(bucket_at(g.offset));
  return weights_[0].rows(g.offset, g.shape.numel()).reshape(g.shape);
}

size_t ParamStore::bucket_at(int64_t offset) const {
  const auto after = std::upper_bound(buckets_.begin(), buckets_.end(), offset,
                                      [](int64_t at, const Bucket& bucket) { return at < bucket.end; });
  check(after != buckets_.end(), "element {} lies behind the last bucket", offset);
  return static_cast<size_t>(after - buckets_.begin());
}

size_t ParamStore::bucket_of(const Entry& entry) const {
  check(entry.primary < 0, "{} has a second gradient here, which is in no bucket", entry.spec.name);
  return bucket_at(entry.offset);
}

void ParamStore::weights_arrive(size_t bucket, Pending message) {
  arriving_.push_back({bucket, std::move(message)});
}

void ParamStore::await(size_t bucket) const {
  for (Arriving& a : arriving_)
    if (a.bucket == bucket) a.message.wait();
  std::erase_if(arriving_, [&](const Arriving& a) { return a.bucket == bucket; });
}

Tensor ParamStore::weights() const {
  while (!arriving_.empty()) await(arriving_.front().bucket);
  return weights_[0];
}

ParamStore::~ParamStore() {
  for (Arriving& a : arriving_) {
    try {
      const Pending last = std::move(a.message);
    } catch (const Error&) {
      // A peer has failed, and nobody will use these weights.
    }
  }
}

Tensor ParamStore::grad(int group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  if (g.in_tied) return tied_[g.tied_index];
  return Tensor(static_cast<float*>(grads().raw()) + g.offset, DType::f32, g.shape);
}

Tensor ParamStore::tied_grad(const Entry& entry) const {
  for (const Group& g : groups_)
    if (g.in_tied && &entries_[static_cast<size_t>(g.first)] == &entry) return tied_[g.tied_index];
  fail("{} has no second gradient on this rank", entry.spec.name);
}

Tensor ParamStore::primary_grad(const Entry& entry) const {
  return Tensor(static_cast<float*>(grads().raw()) + entry.offset, DType::f32, entry.memory);
}

ParamStore::GradSum ParamStore::grad_sum(int group) {
  Group& g = groups_[static_cast<size_t>(group)];
  check(g.by_products, "{} was not declared by_products", entries_[static_cast<size_t>(g.first)].spec.name);
  return {grad(group), std::exchange(g.empty, false) ? 0.0F : 1.0F};
}

void ParamStore::zero_grads() {
  int64_t begin = 0;  // of what is added to
  const auto zero_to = [&](int64_t end) {
    if (begin < end)
      device_->fill_zero(grads().f32() + begin, static_cast<size_t>(end - begin) * sizeof(float));
  };
  for (Group& g : groups_) {
    g.empty = g.by_products;
    if (g.in_tied) {
      if (!g.by_products) device_->fill_zero(tied_[g.tied_index].raw(), tied_[g.tied_index].bytes());
    } else if (g.by_products) {
      zero_to(g.offset);
      begin = g.offset + g.shape.numel();
    }
  }
  zero_to(elements_);
}

}  // namespace triax
