#pragma once

#include <memory>
#include <string>

#include "data/token_file.h"

namespace triax {

/// Tokens as Megatron-LM keeps them: PREFIX.bin holds the sequences, PREFIX.idx where each begins and how
/// long it is; `path` names either file, or PREFIX. The stream is the sequences in the order of the index.
/// Both kinds of index are read: "MMIDIDX" (version 1: Megatron-LM's IndexedDataset, and its
/// MMapIndexedDataset before) and the older "TNTIDX" (version 1, of fairseq). Elements: uint8, uint16, int32,
/// and the other integers as far as their values are tokens. Layout:
/// megatron/core/datasets/indexed_dataset.py. Usage errors, naming file and reason: a file is missing,
/// truncated or longer than the index says, an index that points outside of the data, elements that are no
/// integers, no token at all.
std::unique_ptr<TokenSource> open_megatron_tokens(const std::string& path);

/// Tokens as llm.c keeps them: 256 int32 of header (magic, version, number of tokens), then uint16 (magic
/// 20240520, version 1) or uint32 (magic 20240801, version 7). Layout: llm.c's dev/data/data_common.py. Usage
/// errors, naming file and reason: another header, another size than the header says.
std::unique_ptr<TokenSource> open_llmc_tokens(const std::string& path);

/// Whether `path` stands for a pair of PREFIX.bin and PREFIX.idx.
bool is_megatron_path(const std::string& path);

}  // namespace triax
