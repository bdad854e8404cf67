#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace triax {

/// A model of SentencePiece (unigram or BPE), by its own library: the same ids as its encode(), no beginning
/// and no end put to them. end_of_text() is the model's eos_id, none where it has none.
std::unique_ptr<Tokenizer> open_sentencepiece_tokenizer(const std::string& path);

/// What train_sentencepiece() is told.
struct SentencePieceTraining {
  std::vector<std::string> inputs;  ///< text files, a sentence a line
  std::string output;               ///< the model, FILE.model; replaced atomically
  int64_t vocab_size = 32000;
  std::string algorithm = "bpe";   ///< bpe | unigram
  int64_t sentences = 10'000'000;  ///< at most so many lines are looked at, drawn evenly
  int threads = 1;
};
/// Trains a model that encodes any text (byte fallback) and keeps white space, digit by digit, as LLaMA's
/// does. Usage errors are those of the library: too little text for so many tokens, files that can't be read.
void train_sentencepiece(const SentencePieceTraining& training);

}  // namespace triax
