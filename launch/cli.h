#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "launch/commands.h"

namespace triax {

/// Refuses what is no number from `least` to `most`; CLI::Range lets nan pass.
inline CLI::Validator number_between(double least, double most) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
    return fmt::format("{} is not between {:g} and {:g}", text, least, most);
  };
  return {check, fmt::format("in [{:g} - {:g}]", least, most)};
}

/// Adds JOB.yaml, --ranks and --set to a command; `job` outlives the parser.
void add_job(CLI::App& command, JobArguments& job, bool required = true);

/// Sets what runs after parsing: called by the command that was given, with a function that returns the exit
/// status.
using Choose = std::function<void(std::function<int()>)>;
/// The commands `triax checkpoint ...`.
void add_checkpoint(CLI::App& app, const Choose& choose);
/// `triax init`.
void add_init(CLI::App& app, const Choose& choose);
/// `triax completion`, `triax schema`, `triax man`, `triax reference`: about the commands of `app`.
void add_describe(CLI::App& app, const Choose& choose);
/// The commands `triax generate` and `triax evaluate`.
void add_generate(CLI::App& app, const Choose& choose);
void add_evaluate(CLI::App& app, const Choose& choose);
/// The commands `triax tokenize ...`.
void add_tokenize(CLI::App& app, const Choose& choose);
/// Adds commands of rooms that this one does not know, such as its neighbour bench.
using AddCommands = std::function<void(CLI::App& app, const Choose& choose)>;

/// Command line to exit status: parses, runs the command, prints its error.
int run_command_line(int argc, char** argv, const AddCommands& more = {});

}  // namespace triax
