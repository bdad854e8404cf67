#pragma once

#include <memory>
#include <string>

#include "data/token_file.h"

namespace triax {

/// JSON lines as bytes: the text of each line's object under `key` is a document, its bytes are tokens, and
/// token 256 ends it, so that the vocabulary is 257. Blank lines and empty texts are passed over. Opening
/// reads the file once and keeps where documents begin (16 bytes for each, and for each 64 KiB of a long
/// one). Usage errors, naming file, line and what is wrong: a line that is no JSON object, without the key,
/// or whose value is no text; no document at all.
std::unique_ptr<TokenSource> open_json_lines(const std::string& path, const std::string& key);

}  // namespace triax
