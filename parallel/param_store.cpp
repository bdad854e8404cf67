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
      lookups_("gradients of look-ups", device) {}

int ParamStore::declare(std::vector<ParamSpec> side_by_side, GradKind kind) {
  check(!weights_.committed(), "{} was declared after the parameters were committed",
        side_by_side.at(0).name);
  Group group{static_cast<int>(entries_.size()), static_cast<int>(side_by_side.size()), kind};
  int64_t at = elements_;
  for (ParamSpec& spec : side_by_side) {
    Entry entry{localise(spec, *grid_, rank_)};
    entry.offset = at;
    entry.counted = entry.copy == 0;
    if (spec.tied) {
      check(side_by_side.size() == 1 && kind == GradKind::products,
            "{}: a tied parameter is declared alone, and multiplied with", spec.name);
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
  if (only.primary >= 0) {  // one weight; the gradient of the look-ups gives its place to the products'
    group.offset = only.offset = entries_[static_cast<size_t>(only.primary)].offset;
    const auto table = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.first == only.primary && g.kind == GradKind::lookups;
    });
    check(table != groups_.end(), "{} is tied to a parameter that is not looked up", only.spec.name);
    check(apart_ < 0, "{} is the second tied table of a rank", only.spec.name);
    apart_ = static_cast<int>(table - groups_.begin());
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

void ParamStore::commit(bool gradients, int64_t step_tokens) {
  close_bucket();
  weights_.declare("all weights", {elements_}, dtype_);
  weights_.commit();
  if (!gradients) return;
  grads_.declare("all gradients", {elements_}, DType::f32);
  grads_.commit();
  find_ends();
  if (apart_ >= 0) {
    const Entry& table = entries_[static_cast<size_t>(groups_[static_cast<size_t>(apart_)].first)];
    by_slot_ = step_tokens < table.memory[0];
    lookups_.declare(table.spec.name, {std::min(step_tokens, table.memory[0]), table.memory[1]}, DType::f32);
  }
  lookups_.commit();
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
  check(entry.primary < 0, "{} is tied to an earlier parameter, which has the bucket", entry.spec.name);
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

Tensor ParamStore::grad(int group) {
  Group& g = groups_[static_cast<size_t>(group)];
  check(g.kind != GradKind::lookups, "{} was declared for look-ups",
        entries_[static_cast<size_t>(g.first)].spec.name);
  if (g.empty) clear(g, g.offset);
  return Tensor(grads().f32() + g.offset, DType::f32, g.shape);
}

Tensor ParamStore::primary_grad(const Entry& entry) const {
  return Tensor(grads().f32() + entry.offset, DType::f32, entry.memory);
}

ParamStore::GradSum ParamStore::grad_sum(int group) {
  Group& g = groups_[static_cast<size_t>(group)];
  check(g.kind == GradKind::products, "{} was not declared for products",
        entries_[static_cast<size_t>(g.first)].spec.name);
  const bool first = g.empty;
  if (first) clear(g, g.offset + g.shape.numel());
  return {grad(group), first ? 0.0F : 1.0F};
}

ParamStore::LookupGrad ParamStore::lookup_grad(int group) {
  Group& g = groups_[static_cast<size_t>(group)];
  const Entry& table = entries_[static_cast<size_t>(g.first)];
  check(g.kind == GradKind::lookups, "{} was not declared for look-ups", table.spec.name);
  if (group == apart_) return {lookups_[0], by_slot_};
  if (g.empty) clear(g, g.offset);
  return {primary_grad(table), false};
}

std::optional<ParamStore::LookupsApart> ParamStore::lookups_apart() const {
  if (apart_ < 0) return std::nullopt;
  const Group& g = groups_[static_cast<size_t>(apart_)];
  return LookupsApart{&entries_[static_cast<size_t>(g.first)], lookups_[0], by_slot_, slot_ids_};
}

// A group's place reaches up to the next one's; of several at one place, all but the last have no elements.
void ParamStore::find_ends() {
  std::vector<Group*> in_order;
  for (Group& g : groups_)
    if (!is_apart(g)) in_order.push_back(&g);
  std::sort(in_order.begin(), in_order.end(), [](const Group* a, const Group* b) {
    return std::pair(a->offset, a->first) < std::pair(b->offset, b->first);
  });
  int64_t end = elements_;
  for (auto g = in_order.rbegin(); g != in_order.rend(); ++g) end = ((*g)->end = end, (*g)->offset);
}

void ParamStore::clear(Group& group, int64_t from) {
  group.empty = false;
  if (from < group.end)
    device_->fill_zero(grads().f32() + from, static_cast<size_t>(group.end - from) * sizeof(float));
}

void ParamStore::zero_grads() {
  for (Group& g : groups_) g.empty = !is_apart(g);
  if (apart_ >= 0) device_->fill_zero(lookups_[0].raw(), lookups_[0].bytes());
}

void ParamStore::settle_grads(int first, int end) {
  for (Group& g : groups_)
    if (g.empty && g.first >= first && g.first < end) clear(g, g.offset);
}

std::pair<size_t, size_t> ParamStore::lendable(int entry) const {
  int64_t end = elements_;
  if (static_cast<size_t>(entry) < entries_.size()) {
    const auto& begins = entries_[static_cast<size_t>(entry)];
    check(begins.primary < 0, "{} is tied to an earlier parameter", begins.spec.name);
    end = begins.offset;
  }
  int64_t begin = 0;
  // The product's group has the table's place, and clears it with the padding.
  for (const Group& g : groups_)
    if (apart_ >= 0 && g.offset == groups_[static_cast<size_t>(apart_)].offset)
      begin = std::max(begin, g.end);
  return {static_cast<size_t>(begin) * sizeof(float), static_cast<size_t>(end) * sizeof(float)};
}

}  // namespace triax
