#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace triax {

/// A tokenizer.json of Hugging Face's tokenizers package whose model is byte-level BPE, such as those of
/// GPT-2, LLaMA-3 and Qwen2: the same ids as the package's encode(text, add_special_tokens=False). What is
/// understood: model BPE without prefixes, suffixes, dropout and byte fallback (ignore_merges, merges as text
/// or as pairs); pre-tokenizer ByteLevel, or a Sequence of a Split by one of the models' patterns
/// (word_pattern.h) and ByteLevel; normalizer none or NFC; decoder ByteLevel; added tokens with all their
/// flags. Anything else is a usage error that names it. Post-processors only put special tokens around a
/// text, which encode() does not.
///
/// end_of_text() is eos_token of the tokenizer_config.json beside it; else <|endoftext|>, <|end_of_text|>,
/// <|im_end|> or </s>, the first that there is.
std::unique_ptr<Tokenizer> open_huggingface_tokenizer(const std::string& path);

}  // namespace triax
