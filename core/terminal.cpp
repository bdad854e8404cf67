#include "core/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace triax {

bool wants_colour(std::FILE* out) {
  const char *no_colour = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  if (no_colour && *no_colour) return false;
  if (!terminal || std::string_view(terminal) == "dumb") return false;
  return isatty(fileno(out)) != 0;
}

std::string inked(std::FILE* out, Ink ink, std::string_view text) {
  if (!wants_colour(out)) return std::string(text);
  const char* code = ink == Ink::red ? "31" : ink == Ink::yellow ? "33" : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace triax
