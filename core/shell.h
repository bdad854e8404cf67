#pragma once

#include <string>

namespace triax {

/// One word as a shell would take it: quoted where it has to be.
std::string shell_word(const std::string& word);

}  // namespace triax
