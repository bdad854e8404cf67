// The commands that print what the program knows of itself.
#include <cstdio>
#include <memory>

#include "core/fields.h"
#include "engine/job.h"
#include "launch/cli.h"
#include "launch/command_tree.h"

namespace triax {

namespace {

std::vector<std::string> job_keys() {
  std::vector<std::string> keys;
  fields_of(static_cast<const RunConfig*>(nullptr)).list_keys("", keys);
  return keys;
}

// A command without options that prints `text()`.
void add_printing(CLI::App& app, const Choose& choose, const char* name, const char* what,
                  const char* example, std::function<std::string()> text) {
  app.add_subcommand(name, what)
      ->footer(std::string("Example:\n  ") + example)
      ->final_callback([choose, text = std::move(text)] {
        choose([text] {
          std::fputs(text().c_str(), stdout);
          return exit_done;
        });
      });
}

}  // namespace

void add_describe(CLI::App& app, const Choose& choose) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "print the script that makes a shell complete triax's command line");
  completion->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  completion->footer(
      "Example:\n"
      "  triax completion bash > ~/.local/share/bash-completion/completions/triax\n"
      "  triax completion zsh > ~/.zfunc/_triax\n"
      "  triax completion fish > ~/.config/fish/completions/triax.fish");
  completion->final_callback([&app, choose, shell] {
    choose([&app, shell] {
      std::fputs(completion_script(command_tree(app), *shell, job_keys()).c_str(), stdout);
      return exit_done;
    });
  });
  add_printing(app, choose, "schema", "print the JSON Schema of job files, for editors",
               "triax schema > triax.schema.json", [] { return job_schema() + "\n"; });
  add_printing(app, choose, "man", "print the manual page triax(1)", "triax man | man -l -",
               [&app] { return manual_page(command_tree(app), TRIAX_VERSION); });
  add_printing(app, choose, "reference", "print every command and every key as Markdown",
               "triax reference > reference.md", [&app] { return reference_page(command_tree(app)); });
}

}  // namespace triax
