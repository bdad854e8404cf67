#include "engine/job_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/agree.h"

namespace triax {

namespace {

std::unique_ptr<SampleOrder> order_of(const std::vector<DataSource>& sources, const RunConfig& config,
                                      EpochOrder order) {
  if (sources.empty()) return nullptr;
  return std::make_unique<SampleOrder>(
      open_samples(sources, config.training.sequence_length, static_cast<uint64_t>(config.seed), order,
                   config.model.vocab_size, {config.data.tokenizer, config.data.json_key}));
}

void add_fingerprints(const SampleOrder* order, const char* name, DataFingerprints& out) {
  for (size_t i = 0; order && i < order->sources().size(); ++i)
    out[fmt::format("{}.{}", name, i)] = order->sources()[i]->fingerprint();
}

}  // namespace

JobData::JobData(const RunConfig& config)
    : train(order_of(config.data.train, config, EpochOrder::shuffled)),
      validation(order_of(config.data.validation, config, EpochOrder::sequential)) {}

DataFingerprints JobData::fingerprints() const {
  DataFingerprints prints;
  add_fingerprints(train.get(), "train", prints);
  add_fingerprints(validation.get(), "validation", prints);
  return prints;
}

bool trained_on_text(const RunConfig& config) {
  const auto is_text = [](const DataSource& source) {
    const auto extension = std::filesystem::path(source.path).extension();
    return extension == ".txt" || extension == ".jsonl";
  };
  const auto& train = config.data.train;
  return !train.empty() && std::all_of(train.begin(), train.end(), is_text);
}

DataFingerprints shared_fingerprints(const JobData& data, Communicator& world) {
  std::string bytes;
  collectively(world, [&] {
    if (world.rank() == 0) bytes = nlohmann::json(data.fingerprints()).dump();
  });
  broadcast_bytes(world, bytes, 0);
  return nlohmann::json::parse(bytes).get<DataFingerprints>();
}

}  // namespace triax
