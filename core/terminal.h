#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace triax {

/// What a colour says: an error, a warning, something by the way.
enum class Ink { red, yellow, faint };

/// Whether `out` is a terminal that is to have colours: not with NO_COLOR set to anything (no-color.org), nor
/// with TERM "dumb".
bool wants_colour(std::FILE* out);

/// `text` in that colour where `out` wants colours, else as it is.
std::string inked(std::FILE* out, Ink ink, std::string_view text);

}  // namespace triax
