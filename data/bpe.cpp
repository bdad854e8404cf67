#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace triax {
namespace {

constexpr int32_t no_rank = std::numeric_limits<int32_t>::max();
// Up to here looking at all ranks is quicker than a heap.
constexpr size_t short_word = 64;

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t slot_of(uint64_t key) {
  key *= 0x9E3779B97F4A7C15;
  return key ^ key >> 32;
}

size_t hash_word(std::string_view word) {
  uint64_t hash = word.size() * 0x9E3779B97F4A7C15;
  size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    uint64_t part = 0;
    std::memcpy(&part, word.data() + at, 8);
    hash = std::rotl((hash ^ part) * 0xD6E8FEB86659FD93, 29);
  }
  uint64_t rest = 0;
  for (size_t i = at; i < word.size(); ++i) rest = rest << 8 | static_cast<unsigned char>(word[i]);
  hash = (hash ^ rest) * 0xD6E8FEB86659FD93;
  return hash ^ hash >> 32;
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_tokens, const std::vector<Merge>& merges,
         std::unordered_map<std::string, int32_t> whole_words)
    : byte_tokens_(byte_tokens),
      pairs_(std::bit_ceil(2 * merges.size() + 2)),
      whole_words_(std::move(whole_words)) {
  const size_t mask = pairs_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = key_of(merges[rank].left, merges[rank].right);
    size_t slot = slot_of(key) & mask;
    while (pairs_[slot].key != ~uint64_t{0} && pairs_[slot].key != key) slot = (slot + 1) & mask;
    // Of a merge that is listed twice the last one counts, as in the tokenizers package.
    pairs_[slot] = {key, static_cast<int32_t>(rank), merges[rank].merged};
  }
}

const Bpe::Pair* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  const size_t mask = pairs_.size() - 1;
  for (size_t slot = slot_of(key) & mask; pairs_[slot].key != ~uint64_t{0}; slot = (slot + 1) & mask)
    if (pairs_[slot].key == key) return &pairs_[slot];
  return nullptr;
}

void Bpe::encode(std::string_view word, Cache& cache, std::vector<int32_t>& out) const {
  if (word.size() == 1) {
    const int32_t token = byte_tokens_[static_cast<unsigned char>(word[0])];
    if (token >= 0) out.push_back(token);
    return;
  }
  Cache::Slot* slot = nullptr;
  if (word.size() <= Cache::longest) {
    slot = &cache.slots_[hash_word(word) & (cache.slots_.size() - 1)];
    if (slot->bytes == word.size() && std::memcmp(slot->word.data(), word.data(), word.size()) == 0) {
      out.insert(out.end(), slot->tokens.begin(), slot->tokens.begin() + slot->count);
      return;
    }
  }
  merge(word, cache);
  const std::vector<int32_t>& parts = cache.parts_;
  out.insert(out.end(), parts.begin(), parts.end());
  if (!slot || parts.size() > Cache::most) return;
  slot->bytes = static_cast<uint8_t>(word.size());
  slot->count = static_cast<uint8_t>(parts.size());
  std::copy(word.begin(), word.end(), slot->word.begin());
  std::copy(parts.begin(), parts.end(), slot->tokens.begin());
}

void Bpe::merge(std::string_view word, Cache& cache) const {
  cache.parts_.clear();
  if (!whole_words_.empty()) {
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      cache.parts_.push_back(whole->second);
      return;
    }
  }
  for (const char c : word)
    if (const int32_t token = byte_tokens_[static_cast<unsigned char>(c)]; token >= 0)
      cache.parts_.push_back(token);
  cache.parts_.size() <= short_word ? merge_short(cache) : merge_long(cache);
}

void Bpe::merge_short(Cache& cache) const {
  std::vector<int32_t>&parts = cache.parts_, &ranks = cache.ranks_;
  const auto rank_at = [&](size_t i) {
    const Pair* pair = i + 1 < parts.size() ? find(parts[i], parts[i + 1]) : nullptr;
    return pair ? pair->rank : no_rank;
  };
  ranks.resize(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) ranks[i] = rank_at(i);
  while (parts.size() > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());  // the first of equals
    if (*lowest == no_rank) return;
    const auto i = static_cast<size_t>(lowest - ranks.begin());
    parts[i] = find(parts[i], parts[i + 1])->merged;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

// A linked list of parts and a heap of what could be merged, in which entries that have been overtaken stay.
void Bpe::merge_long(Cache& cache) const {
  std::vector<int32_t>&parts = cache.parts_, &before = cache.before_, &after = cache.after_;
  auto& heap = cache.heap_;
  const auto count = static_cast<int32_t>(parts.size());
  before.resize(parts.size());
  after.resize(parts.size());
  heap.clear();
  const auto push = [&](int32_t i) {
    if (i < 0 || after[i] >= count) return;
    const Pair* pair = find(parts[i], parts[after[i]]);
    if (!pair) return;
    heap.emplace_back(-((int64_t{pair->rank} << 32) + i), pair->merged);
    std::push_heap(heap.begin(), heap.end());
  };
  for (int32_t i = 0; i < count; ++i) before[i] = i - 1, after[i] = i + 1;
  for (int32_t i = 0; i < count; ++i) push(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const auto [order, merged] = heap.back();
    heap.pop_back();
    const auto i = static_cast<int32_t>(-order & 0xFFFFFFFF);
    if (parts[i] < 0 || after[i] >= count) continue;
    const Pair* pair = find(parts[i], parts[after[i]]);
    if (!pair || pair->rank != -order >> 32) continue;
    const int32_t gone = after[i];
    parts[i] = merged;
    parts[gone] = -1;
    after[i] = after[gone];
    if (after[i] < count) before[after[i]] = i;
    push(before[i]);
    push(i);
  }
  std::erase(parts, -1);
}

}  // namespace triax
