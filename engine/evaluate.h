#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/tokenizer.h"
#include "engine/inference.h"
#include "engine/open_model.h"
#include "engine/train.h"

namespace triax {

/// How a stream of tokens is cut into the sequences that the model sees (all in tokens).
struct Windows {
  int64_t sequence = 0;  ///< S: inputs of a window
  int64_t stride = 0;    ///< from one window's begin to the next one's, 1 to S
  int64_t most = 0;      ///< windows of a file that count, from its begin; 0: all
};

/// One window: inputs [begin, begin + inputs), each with the next token as target, of which those from
/// `first_counted` on (an index into the inputs) are in no window before.
struct Window {
  int64_t begin, inputs, first_counted;
};
/// Every token of a stream but the first is a counted target of exactly one window, also those of the last,
/// shorter window. `tokens`: length of the stream, at least 2.
int64_t window_count(int64_t tokens, const Windows& cut);
Window window_at(int64_t index, int64_t tokens, const Windows& cut);

/// The loss of one file, or of all.
struct FileLoss {
  std::string name;
  int64_t targets = 0;           ///< tokens that were predicted
  double nats = 0;               ///< the sum of their losses
  std::optional<int64_t> bytes;  ///< of their text, when the tokenizer tells
  double loss() const { return nats / static_cast<double>(targets); }
  double perplexity() const;
  std::optional<double> bits_per_byte() const;
};

struct Evaluation {
  std::vector<FileLoss> files;
  FileLoss total;
  double seconds = 0;  ///< without loading
  bool interrupted = false;
  std::vector<MemoryLine> memory;
};

struct EvaluateRequest {
  std::vector<std::shared_ptr<const TokenSource>> files;  ///< each of at least 2 tokens
  Windows windows;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< counts bytes; may be null
};

/// Text that is tokenised in memory: a source for evaluation alone. Usage error when it can't be read.
std::shared_ptr<const TokenSource> tokenised_text(const std::string& path, const Tokenizer& tokenizer);

/// Loads the model on the job's grid and sums the losses of all counted targets, exactly, so that the result
/// does not depend on the order; data ranks share the windows, training.micro_batch_size of them to a pass.
/// `progress` is called on rank 0 with the windows that are done and that there are. A signal in `stop`, on
/// any rank, ends it. A token that the model does not have is a fault that names file and position.
/// Collective; all ranks return the same.
Evaluation evaluate(const RunConfig& config, const ModelSource& source, Communicator& world, int local_rank,
                    int local_size, const EvaluateRequest& request, const StopFlag& stop,
                    const std::function<void(int64_t done, int64_t total)>& progress);

/// The same with a model whose weights are there, of shape {micro_batch_size, windows.sequence}.
Evaluation evaluate(const RunConfig& config, InferenceModel& model, Mesh& mesh,
                    const EvaluateRequest& request, const StopFlag& stop,
                    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace triax
