#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/blend.h"
#include "data/config.h"
#include "data/token_file.h"

namespace triax {

/// How the samples of a source follow one another.
enum class EpochOrder {
  shuffled,    ///< training: each epoch in its own pseudo-random order (Permutation)
  sequential,  ///< validation: as they stand in the file, again from the start after the last
};

/// The order of a job's samples: sample n is a fixed function of (sources, weights, sequence_length, seed, n)
/// and of nothing else, so that any rank computes any sample and a resumed job reads on where it stopped.
///
/// Sample i of a source is its tokens [i S, i S + S], S + 1 of them, so that a source has
/// floor((tokens - 1) / S) samples. Blend says which source serves sample n and how many it has served
/// before; that number's quotient by the samples of the source is the epoch, its remainder the entry in the
/// epoch's order. Thread-safe; holds no state that changes.
class SampleOrder {
 public:
  struct Place {
    int source;
    int64_t epoch;
    int64_t sample;  ///< of the source
    bool operator==(const Place&) const = default;
  };

  /// One weight per source. `vocab_size`: read_sample() fails on a token that is not below it; 0: on none.
  /// Usage errors, naming the source: no whole sample in it (and how many tokens it has), a weight that is
  /// not positive, no source at all.
  SampleOrder(std::vector<std::shared_ptr<const TokenSource>> sources, std::span<const double> weights,
              int64_t sequence_length, uint64_t seed, EpochOrder order = EpochOrder::shuffled,
              int64_t vocab_size = 0);

  /// Where sample n (from 0) stands.
  Place locate(int64_t n) const;
  /// Writes the sequence_length() + 1 tokens of sample n to `out`. A token outside of the vocabulary is a
  /// fault that names file, position and token.
  void read_sample(int64_t n, int32_t* out) const;

  int64_t sequence_length() const { return sequence_length_; }
  const std::vector<std::shared_ptr<const TokenSource>>& sources() const { return sources_; }
  /// Whole samples of a source: the length of its epoch.
  int64_t samples(int source) const { return samples_[source]; }
  const Blend& blend() const { return blend_; }

 private:
  std::vector<std::shared_ptr<const TokenSource>> sources_;
  Blend blend_;
  int64_t sequence_length_;
  uint64_t seed_;
  EpochOrder order_;
  int64_t vocab_size_;
  std::vector<int64_t> samples_;
};

/// Opens the files of data.train or data.validation and orders their samples; the errors are those of
/// open_tokens() and SampleOrder.
SampleOrder open_samples(const std::vector<DataSource>& sources, int64_t sequence_length, uint64_t seed,
                         EpochOrder order = EpochOrder::shuffled, int64_t vocab_size = 0,
                         const TextOptions& text = {});

}  // namespace triax
