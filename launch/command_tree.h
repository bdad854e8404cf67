#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace triax {

/// An option or a positional argument as the parser knows it: what manual, reference and completions are
/// written from, so that none of them can be stale.
struct OptionDoc {
  std::vector<std::string> names;  ///< with their dashes, "-q", "--quiet"; of a positional its one name
  std::string value;               ///< "INT in [1 - 8]"; empty for a flag
  std::string doc;
  std::string default_value;  ///< empty: none that is told
  bool required = false;
  bool positional = false;

  bool takes_value() const { return !value.empty(); }
};

/// A command with the commands below it.
struct CommandDoc {
  std::string path;  ///< "triax checkpoint ls"
  std::string doc, footer;
  std::vector<OptionDoc> options;  ///< positionals first
  std::vector<CommandDoc> commands;

  /// The last word of the path.
  std::string name() const { return path.substr(path.rfind(' ') + 1); }
  /// Whether it has positional arguments; then the commands below it need not be given.
  bool takes_arguments() const {
    return std::any_of(options.begin(), options.end(), [](const OptionDoc& o) { return o.positional; });
  }
};

/// The tree below a parser.
CommandDoc command_tree(const CLI::App& app);
/// All commands of a tree, a command before those below it.
std::vector<const CommandDoc*> all_commands(const CommandDoc& root);

/// "triax train [OPTIONS] JOB.yaml..."
std::string usage_of(const CommandDoc& command);

/// What is wrong with the words that `app` could not place when it last parsed: an unknown option or command
/// with the nearest one or all there are, an argument too many, or that a command is missing. Empty when each
/// word has its place. What else is wrong with the line may only follow from that.
std::string word_problem(const CLI::App& app);

/// A script that makes this shell complete the command line: "bash", "zsh" or "fish"; `keys` are those of a
/// job file, for --set.
std::string completion_script(const CommandDoc& root, const std::string& shell,
                              const std::vector<std::string>& keys);
/// The page triax(1), for man.
std::string manual_page(const CommandDoc& root, const std::string& version);
/// The same as Markdown, with the keys of job and cluster files.
std::string reference_page(const CommandDoc& root);

}  // namespace triax
