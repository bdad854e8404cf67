#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/token_writer.h"

namespace triax {

/// What turns text files into a token file.
struct TokenizeOptions {
  std::vector<std::string>
      inputs;  ///< in this order; `.jsonl`: a document a line; anything else: one document
  std::string tokenizer = "bytes";
  std::string output;  ///< prefix of what is written
  TokenFormat format = TokenFormat::megatron;
  int workers = 1;  ///< threads that encode; they change nothing but the time
  std::string json_key = "text";
  bool end_of_text = true;  ///< put the tokenizer's end of text behind each document
  bool overwrite = false;
  double save_seconds = 5;  ///< between two states from which a killed run goes on
};

struct TokenizeProgress {
  int64_t bytes = 0, total_bytes = 0;  ///< of the inputs
  int64_t first_bytes = 0;             ///< done by runs before this one
  WrittenTokens written;
};

/// Tokenizes in constant memory (some megabytes for each worker, and the longest line). The bytes written are
/// a function of inputs, tokenizer and options alone. The state stands in <output>.state.json: a run that was
/// stopped or killed goes on from there when it is repeated, or from the beginning when an input (its size or
/// time), the tokenizer, its end of text or an option is another one, or the parts that were written are gone
/// (said on standard error). `progress` is called now and then, and once after all;
/// false before that stops, keeping the state, and the result is false. Usage errors: no input, one that
/// can't be read or holds no text, a line of JSON lines that is damaged (with file and line), an output that
/// is there already, a tokenizer without end of text though it is asked for. One that is found while encoding
/// leaves neither parts nor state behind: the input has to be changed, and is another one then.
///
/// A text file longer than a megabyte is encoded in pieces. They are cut beside line ends where that changes
/// no token for the known patterns of byte-level BPE; a tokenizer of which that is not certain gets the file
/// in one piece. SentencePiece begins anew behind each cut, which is at a line end about every megabyte.
bool tokenize(const TokenizeOptions& options, const std::function<bool(const TokenizeProgress&)>& progress);

}  // namespace triax
