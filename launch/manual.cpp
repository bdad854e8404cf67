// The manual page and the reference: two ways to write one tree.
#include <fmt/format.h>

#include <sstream>

#include "core/fields_text.h"
#include "engine/cluster.h"
#include "launch/command_tree.h"

namespace triax {

namespace {

std::string joined(const std::vector<std::string>& words, const std::string& between,
                   const std::string& before = "", const std::string& after = "") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + before + word + after;
  return text;
}

// What troff would take for a command or for something other than the character itself.
std::string troff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

// "Example:" and what follows; lines that begin with blanks are shown as they are.
std::string troff_footer(const std::string& footer) {
  std::istringstream lines(footer);
  std::string out;
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_code = line.rfind("  ", 0) == 0;
    if (is_code != code) out += is_code ? ".PP\n.EX\n" : ".EE\n.PP\n";
    code = is_code;
    out += troff(line) + "\n";
  }
  return (out.rfind(".PP\n", 0) == 0 ? "" : ".PP\n") + out + (code ? ".EE\n" : "");
}

std::string told_default(const OptionDoc& o) {
  return o.default_value.empty() ? "" : fmt::format(" Default: {}.", o.default_value);
}

// A sentence of the command line begins small and ends without a full stop.
std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.' && text.back() != ')') text += '.';
  return text;
}

void add_manual(const CommandDoc& c, std::string& out) {
  out +=
      fmt::format(".SS \"{}\"\n{}\n.PP\n.B {}\n", troff(c.path), troff(sentence(c.doc)), troff(usage_of(c)));
  for (const OptionDoc& o : c.options)
    out += fmt::format(".TP\n{}{}\n{}\n", joined({troff(joined(o.names, ", "))}, "", "\\fB", "\\fR"),
                       o.takes_value() && !o.positional ? " \\fI" + troff(o.value) + "\\fR" : "",
                       troff(sentence(o.doc) + (o.required ? " Required." : "") + told_default(o)));
  if (!c.footer.empty()) out += troff_footer(c.footer);
}

std::string markdown_footer(const std::string& footer) {
  std::istringstream lines(footer);
  std::string out;
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_code = line.rfind("  ", 0) == 0;
    if (is_code != code && !out.empty()) out += "\n";
    code = is_code;
    out += is_code ? fmt::format("    {}\n", line.substr(2)) : markdown_cell(line) + "\n";
  }
  return out + "\n";
}

void add_reference(const CommandDoc& c, std::string& out) {
  out += fmt::format("### `{}`\n\n{}\n\n    {}\n\n", c.path, markdown_cell(sentence(c.doc)), usage_of(c));
  std::string rows;
  for (const OptionDoc& o : c.options) {
    if (o.names.size() > 1 && o.names[1] == "--help") continue;  // every command has it
    rows += fmt::format("| {} | {} | {} |\n", joined(o.names, ", ", "`", "`"), markdown_cell(o.value),
                        markdown_cell(sentence(o.doc) + (o.required ? " Required." : "") + told_default(o)));
  }
  if (!rows.empty()) out += "| option | value | meaning |\n|---|---|---|\n" + rows + "\n";
  if (!c.footer.empty()) out += markdown_footer(c.footer);
}

}  // namespace

std::string manual_page(const CommandDoc& root, const std::string& version) {
  std::string out = fmt::format(".TH TRIAX 1 \"\" \"triax {}\" \"User Commands\"\n.SH NAME\ntriax \\- {}\n",
                                version, "train transformer language models in three dimensions");
  out += fmt::format(".SH SYNOPSIS\n.B {}\n.SH DESCRIPTION\n{}\n", troff(usage_of(root)), troff(root.doc));
  out +=
      ".PP\nA job is described by one YAML file, which \\fBtriax init\\fR writes and whose keys \\fBtriax "
      "reference\\fR lists.\n.SH COMMANDS\n";
  for (const CommandDoc* command : all_commands(root))
    if (command != &root) add_manual(*command, out);
  out +=
      ".SH EXIT STATUS\n"
      ".TP\n0\ndone\n.TP\n1\na fault while running\n.TP\n2\nbad usage or configuration\n"
      ".TP\n75\nstopped on request (SIGTERM, SIGUSR1, training.stop_after_minutes) after a checkpoint was "
      "saved: the same command continues\n"
      ".TP\n130\nthe same after SIGINT\n"
      ".SH SEE ALSO\n.BR mpirun (1),\n.BR srun (1)\n";
  return out;
}

std::string reference_page(const CommandDoc& root) {
  std::string out =
      "# Reference\n\n"
      "Every command and every key, printed by `triax reference` from the program's own tables; a test "
      "compares\n"
      "this page with them.\n\n"
      "## Commands\n\nEvery command has `--help`, with an example. Exit status: 0 done; 1 a fault while "
      "running; "
      "2 bad usage or\nconfiguration; 75 stopped on request after a checkpoint was saved, 130 the same after "
      "SIGINT.\n\n";
  for (const CommandDoc* command : all_commands(root))
    if (command != &root) add_reference(*command, out);
  out +=
      "## Keys of a job file\n\nUnknown keys are errors. `null` stands for \"not given\" where the default "
      "is in words.\n\n";
  out += keys_as_markdown<RunConfig>();
  out += "## Keys of a cluster file\n\n" + keys_as_markdown<ClusterConfig>();
  while (out.size() > 1 && out[out.size() - 2] == '\n') out.pop_back();
  return out;
}

}  // namespace triax
