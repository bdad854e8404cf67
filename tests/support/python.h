#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace triax::test {

/// The path of a Python that has these packages of the Python registry ("torch transformers"), installed now
/// if need be (scripts/python_env); empty where they are not to be had, with the reason in *why. Then the
/// test skips itself.
inline std::string python_with(const std::string& packages, std::string* why = nullptr) {
  const std::string command = TRIAX_SOURCE_DIR "/scripts/python_env " + packages + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return "";
  std::string line, last;
  for (int c; (c = std::fgetc(pipe)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    last = std::move(line);
    line.clear();
  }
  const bool found = pclose(pipe) == 0;
  if (!found && why) *why = last;
  return found ? last : "";
}

}  // namespace triax::test
