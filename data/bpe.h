#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace triax {

/// Byte-pair encoding of words: the bytes' own tokens, of which again and again the neighbours whose merge
/// has the lowest rank, the leftmost of equals, become one (Sennrich et al., 2016). Immutable; the caches of
/// those who use it are theirs.
class Bpe {
 public:
  struct Merge {
    int32_t left, right, merged;
  };
  /// `byte_tokens` are the tokens of single bytes, -1 where there is none; merges in the order of their
  /// ranks. `whole_words`: a word that is a token itself is that token, whatever the merges say.
  Bpe(const std::array<int32_t, 256>& byte_tokens, const std::vector<Merge>& merges,
      std::unordered_map<std::string, int32_t> whole_words);

  /// Words that came lately and their tokens. For one thread at a time; about 4 MiB.
  class Cache {
   public:
    Cache() : slots_(size_t{1} << 16) {}

   private:
    friend class Bpe;
    static constexpr size_t longest = 22, most = 9;
    struct Slot {
      std::array<int32_t, most> tokens;
      uint8_t bytes = 0, count = 0;
      std::array<char, longest> word;
    };
    std::vector<Slot> slots_;
    std::vector<int32_t> parts_;                     // of the word at hand
    std::vector<int32_t> ranks_;                     // of each part with its right neighbour
    std::vector<int32_t> before_, after_;            // long words: neighbours
    std::vector<std::pair<int64_t, int32_t>> heap_;  // long words: rank and position, part on the left
  };

  /// Appends the tokens of a word. Words of n bytes take O(n log n).
  void encode(std::string_view word, Cache& cache, std::vector<int32_t>& out) const;

 private:
  struct Pair {
    uint64_t key = ~uint64_t{0};
    int32_t rank = 0, merged = 0;
  };
  const Pair* find(int32_t left, int32_t right) const;
  void merge(std::string_view word, Cache& cache) const;
  void merge_short(Cache& cache) const;
  void merge_long(Cache& cache) const;

  std::array<int32_t, 256> byte_tokens_;
  std::vector<Pair> pairs_;  // open addressing, a power of two, at most half full
  std::unordered_map<std::string, int32_t> whole_words_;
};

}  // namespace triax
