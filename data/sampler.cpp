#include "data/sampler.h"

#include "core/error.h"
#include "data/permutation.h"

namespace triax {

SampleOrder::SampleOrder(std::vector<std::shared_ptr<const TokenSource>> sources,
                         std::span<const double> weights, int64_t sequence_length, uint64_t seed,
                         EpochOrder order, int64_t vocab_size)
    : sources_(std::move(sources)),
      blend_(weights),
      sequence_length_(sequence_length),
      seed_(seed),
      order_(order),
      vocab_size_(vocab_size) {
  check(weights.size() == sources_.size(), "{} weights for {} data sources", weights.size(), sources_.size());
  check(sequence_length >= 1, "a sequence of {} tokens", sequence_length);
  for (const auto& source : sources_) {
    if (source->tokens() < sequence_length + 1)
      fail_usage(
          "the data source {} has {} tokens, too few for one sample of sequence_length + 1 = {}; give it "
          "more text or set training.sequence_length to {} or less",
          source->name(), source->tokens(), sequence_length + 1, source->tokens() - 1);
    samples_.push_back((source->tokens() - 1) / sequence_length);
  }
}

SampleOrder::Place SampleOrder::locate(int64_t n) const {
  const auto [source, index] = blend_.draw(n);
  const int64_t samples = samples_[source], epoch = index / samples, entry = index % samples;
  if (order_ == EpochOrder::sequential) return {source, epoch, entry};
  const Permutation permutation(static_cast<uint64_t>(samples), seed_, static_cast<uint64_t>(source),
                                static_cast<uint64_t>(epoch));
  return {source, epoch, static_cast<int64_t>(permutation(static_cast<uint64_t>(entry)))};
}

void SampleOrder::read_sample(int64_t n, int32_t* out) const {
  const Place place = locate(n);
  const TokenSource& source = *sources_[place.source];
  const int64_t first = place.sample * sequence_length_;
  source.read(first, {out, static_cast<size_t>(sequence_length_ + 1)});
  for (int64_t i = 0; vocab_size_ && i <= sequence_length_; ++i)
    check(out[i] >= 0 && out[i] < vocab_size_,
          "token {} of {} is {}, outside of model.vocab_size: {}; it was made with another tokenizer, or "
          "the file is damaged",
          first + i, source.name(), out[i], vocab_size_);
}

SampleOrder open_samples(const std::vector<DataSource>& sources, int64_t sequence_length, uint64_t seed,
                         EpochOrder order, int64_t vocab_size, const TextOptions& text) {
  std::vector<std::shared_ptr<const TokenSource>> opened;
  std::vector<double> weights;
  for (const DataSource& source : sources) {
    opened.push_back(open_tokens(source.path, text));
    weights.push_back(source.weight);
  }
  return {std::move(opened), weights, sequence_length, seed, order, vocab_size};
}

}  // namespace triax
