#include "engine/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "data/mapped_file.h"
#include "parallel/backend.h"

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;

class TextSource final : public TokenSource {
 public:
  TextSource(std::string path, std::vector<int32_t> ids) : path_(std::move(path)), ids_(std::move(ids)) {}
  int64_t tokens() const override { return static_cast<int64_t>(ids_.size()); }
  void read(int64_t first, std::span<int32_t> out) const override {
    check(first >= 0 && first + static_cast<int64_t>(out.size()) <= tokens(), "{}: tokens {} to {} of {}",
          path_, first, first + static_cast<int64_t>(out.size()), tokens());
    std::copy_n(ids_.begin() + first, out.size(), out.begin());
  }
  int64_t vocabulary() const override { return 0; }
  const std::string& name() const override { return path_; }
  std::string fingerprint() const override { return fmt::format("text:{}", ids_.size()); }

 private:
  std::string path_;
  std::vector<int32_t> ids_;
};

/// The windows of one pass, as the model takes them.
struct PassRows {
  std::vector<int32_t> ids, targets;
  int64_t rows = 0, counted = 0, bytes = 0;
};

/// One rank's part of an evaluation.
class Evaluator {
 public:
  Evaluator(const RunConfig& config, InferenceModel& model, Mesh& mesh, const EvaluateRequest& request,
            const StopFlag& stop, const std::function<void(int64_t, int64_t)>& progress)
      : batch_(config.training.micro_batch_size),
        vocabulary_(config.model.vocab_size),
        model_(model),
        mesh_(mesh),
        request_(request),
        stop_(stop),
        progress_(progress) {
    for (const auto& file : request.files) all_ += window_count(file->tokens(), request.windows);
  }

  /// False when a signal came.
  bool add(const TokenSource& file, FileLoss& result) {
    const int64_t windows = window_count(file.tokens(), request_.windows);
    const int64_t data = mesh_.size("dp"), mine = mesh_.coordinate("dp");
    ExactSum loss;
    int64_t counts[2] = {0, 0};  // targets and their bytes, of this rank's windows
    for (int64_t first = 0, turn = 0; first < windows; first += batch_ * data, ++turn) {
      if (turn % turns_between_votes == 0 && stopped()) return false;
      const int64_t begin = first + mine * batch_, rows = std::min(batch_, windows - begin);
      if (rows > 0) {
        read(file, begin, rows);
        model_.add_loss(pass_.ids.data(), pass_.targets.data(), rows, request_.windows.sequence, loss);
        counts[0] += pass_.counted;
        counts[1] += pass_.bytes;
      }
      if (mesh_.rank() == 0 && progress_) progress_(done_ + std::min(windows, first + batch_ * data), all_);
    }
    done_ += windows;
    sum(loss, counts);
    result.nats = loss.value();
    result.targets = counts[0];
    if (request_.tokenizer) result.bytes = counts[1];
    return true;
  }

 private:
  static constexpr int64_t turns_between_votes = 8;  // a message of all ranks holds a pipeline up

  bool stopped() {
    int64_t votes = stop_.signal.load() ? 1 : 0;
    const Tensor all = Tensor::of(&votes, {1});
    mesh_.world().all_reduce(all, all, ReduceOp::sum).wait();
    return votes > 0;
  }

  void read(const TokenSource& file, int64_t first, int64_t rows) {
    const int64_t s = request_.windows.sequence;
    pass_.ids.assign(static_cast<size_t>(rows * s), 0);
    pass_.targets.assign(static_cast<size_t>(rows * s), -1);  // no target
    pass_.counted = pass_.bytes = 0;
    std::vector<int32_t> tokens;
    for (int64_t r = 0; r < rows; ++r) {
      const Window w = window_at(first + r, file.tokens(), request_.windows);
      tokens.resize(static_cast<size_t>(w.inputs + 1));
      file.read(w.begin, tokens);
      for (size_t i = 0; i < tokens.size(); ++i)
        check(tokens[i] >= 0 && tokens[i] < vocabulary_,
              "{}: token {} at position {}; the model's vocab_size is {}: was the file made with the model's "
              "tokenizer?",
              file.name(), tokens[i], w.begin + static_cast<int64_t>(i), vocabulary_);
      std::copy_n(tokens.begin(), w.inputs, pass_.ids.begin() + r * s);
      std::copy(tokens.begin() + 1 + w.first_counted, tokens.end(),
                pass_.targets.begin() + r * s + w.first_counted);
      pass_.counted += w.inputs - w.first_counted;
      if (request_.tokenizer)
        pass_.bytes += static_cast<int64_t>(
            request_.tokenizer->decode(std::span(tokens).subspan(static_cast<size_t>(1 + w.first_counted)))
                .size());
    }
  }

  // All tensor ranks know a token's loss, all stages the number of targets: one of them counts.
  void sum(ExactSum& loss, int64_t (&counts)[2]) {
    constexpr int n = ExactSum::digit_count;
    std::array<int64_t, n + 2> all{};
    if (mesh_.last_stage() && mesh_.coordinate("tp") == 0) {
      loss.normalise();
      std::copy_n(loss.digits(), n, all.begin());
      std::copy_n(counts, 2, all.begin() + n);
    }
    const Tensor numbers = Tensor::of(all.data(), {n + 2});
    mesh_.world().all_reduce(numbers, numbers, ReduceOp::sum).wait();
    loss = {};
    std::copy_n(all.begin(), n, loss.digits());
    std::copy_n(all.begin() + n, 2, counts);
  }

  int64_t batch_, vocabulary_;
  InferenceModel& model_;
  Mesh& mesh_;
  const EvaluateRequest& request_;
  const StopFlag& stop_;
  const std::function<void(int64_t, int64_t)>& progress_;
  PassRows pass_;
  int64_t all_ = 0, done_ = 0;
};

}  // namespace

int64_t window_count(int64_t tokens, const Windows& cut) {
  check(tokens >= 2, "a stream of {} tokens has nothing to predict", tokens);
  const int64_t behind_first = std::max<int64_t>(tokens - 1 - cut.sequence, 0);
  const int64_t all = 1 + (behind_first + cut.stride - 1) / cut.stride;
  return cut.most ? std::min(cut.most, all) : all;
}

Window window_at(int64_t index, int64_t tokens, const Windows& cut) {
  const int64_t begin = index * cut.stride;
  return {begin, std::min(cut.sequence, tokens - 1 - begin), index ? cut.sequence - cut.stride : 0};
}

double FileLoss::perplexity() const {
  return std::exp(loss());
}

std::optional<double> FileLoss::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return nats / std::log(2.0) / static_cast<double>(*bytes);
}

std::shared_ptr<const TokenSource> tokenised_text(const std::string& path, const Tokenizer& tokenizer) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return std::make_shared<TextSource>(
      path, tokenizer.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

Evaluation evaluate(const RunConfig& config, InferenceModel& model, Mesh& mesh,
                    const EvaluateRequest& request, const StopFlag& stop,
                    const std::function<void(int64_t done, int64_t total)>& progress) {
  Evaluation result;
  Evaluator evaluator(config, model, mesh, request, stop, progress);
  const auto start = Clock::now();
  ExactSum nats;
  for (const auto& file : request.files) {
    FileLoss& loss = result.files.emplace_back();
    loss.name = file->name();
    if (!evaluator.add(*file, loss)) {
      result.interrupted = true;
      result.files.pop_back();
      break;
    }
    nats.add(loss.nats);
    result.total.targets += loss.targets;
    if (loss.bytes) result.total.bytes = result.total.bytes.value_or(0) + *loss.bytes;
  }
  model.finish();
  result.total.name = "total";
  result.total.nats = nats.value();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.memory = model.memory();
  return result;
}

Evaluation evaluate(const RunConfig& config, const ModelSource& source, Communicator& world, int local_rank,
                    int local_size, const EvaluateRequest& request, const StopFlag& stop,
                    const std::function<void(int64_t done, int64_t total)>& progress) {
  const Backend backend =
      make_backend(config.training.device, compute_threads(config, local_size), local_rank);
  Mesh mesh(grid_of(config), world, inference_needs(config), backend.memory());
  const InferenceShape shape{config.training.micro_batch_size, request.windows.sequence, 0};
  InferenceModel model(config, mesh, *backend.device, *backend.kernels, shape,
                       plan_inference(config, world.rank(), shape).scratch_bytes);
  load_weights(source, world, model.params(), {backend.device->threads().size(), {}});
  return evaluate(config, model, mesh, request, stop, progress);
}

}  // namespace triax
