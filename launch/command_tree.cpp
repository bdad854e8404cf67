#include "launch/command_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/config_tree.h"

namespace triax {

namespace {

// CLI11 writes "INT:INT in [1 - 8]".
std::string without_repetition(const std::string& value) {
  const size_t colon = value.find(':');
  if (colon == std::string::npos) return value;
  const std::string type = value.substr(0, colon), rest = value.substr(colon + 1);
  return rest.rfind(type, 0) == 0 ? rest : type + " " + rest;
}

OptionDoc document(const CLI::Option& option) {
  OptionDoc doc;
  doc.positional = option.get_positional();
  if (doc.positional) {
    doc.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) doc.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) doc.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() > 0) {  // 0: a flag
    doc.value = without_repetition(option.get_type_name());
    if (doc.value.empty()) doc.value = "VALUE";
    if (option.get_items_expected_max() > 1 && doc.value.find("...") == std::string::npos)
      doc.value += " ...";
  }
  doc.doc = option.get_description();
  doc.default_value = option.get_default_str();
  doc.required = option.get_required();
  return doc;
}

// Of a command and of its option groups, which CLI11 keeps as commands without a name.
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* group : app.get_subcommands(nullptr))
    if (group->get_name().empty())
      for (const CLI::Option* option : options_of(*group)) options.push_back(option);
  return options;
}

CommandDoc document(const CLI::App& app, const std::string& above) {
  CommandDoc doc;
  doc.path = (above.empty() ? "" : above + " ") + app.get_name();
  doc.doc = app.get_description();
  doc.footer = app.get_footer();
  for (const bool positional : {true, false})
    for (const CLI::Option* option : options_of(app))
      if (option->get_positional() == positional && !option->get_group().empty() &&
          (above.empty() || option->get_name() != "--help-all"))
        doc.options.push_back(document(*option));
  for (const CLI::App* command : app.get_subcommands(nullptr))
    if (!command->get_name().empty() && !command->get_group().empty())
      doc.commands.push_back(document(*command, doc.path));
  return doc;
}

void collect(const CommandDoc& command, std::vector<const CommandDoc*>& all) {
  all.push_back(&command);
  for (const CommandDoc& below : command.commands) collect(below, all);
}

// "; the nearest is --prompt", or "; the options are --prompt, --tokens".
std::string what_there_is(const std::string& given, const std::vector<std::string>& known, const char* kind) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(given, a) < edit_distance(given, b);
  });
  if (nearest != known.end() && is_near(given, edit_distance(given, *nearest)))
    return "; the nearest is " + *nearest;
  return fmt::format("; the {} are {}", kind, fmt::join(known, ", "));
}

std::string unknown_option(const std::string& given, const CommandDoc& command) {
  const std::string name = given.substr(0, given.find('='));
  std::vector<std::string> known;
  for (const OptionDoc& o : command.options)
    if (!o.positional) known.insert(known.end(), o.names.begin(), o.names.end());
  return fmt::format("{}: {}: unknown option{}", command.path, name, what_there_is(name, known, "options"));
}

std::vector<std::string> names_below(const CommandDoc& command) {
  std::vector<std::string> names;
  for (const CommandDoc& below : command.commands) names.push_back(below.name());
  return names;
}

// `left`: what `command` could not place, in order.
std::string problem_of(const std::vector<std::string>& left, const CommandDoc& command) {
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  if (command.commands.empty() || command.takes_arguments()) {
    // What follows an option that is unknown may be its value.
    const auto option = std::find_if(left.begin(), left.end(), is_option);
    if (option != left.end()) return unknown_option(*option, command);
    return fmt::format("{}: {}: an argument too many; usage: {}", command.path, left.front(),
                       usage_of(command));
  }
  // What follows a command that is unknown is its own.
  if (is_option(left.front())) return unknown_option(left.front(), command);
  return fmt::format("{}: {}: unknown command{}", command.path, left.front(),
                     what_there_is(left.front(), names_below(command), "commands"));
}

}  // namespace

std::string word_problem(const CLI::App& app) {
  CommandDoc doc = command_tree(app);
  for (const CLI::App* command = &app;;) {
    std::vector<std::string> left = command->remaining();
    std::erase(left, "--");
    if (!left.empty()) return problem_of(left, doc);
    const auto parsed = command->get_subcommands();
    if (parsed.empty()) break;
    command = parsed.front();
    const auto below = std::find_if(doc.commands.begin(), doc.commands.end(),
                                    [&](const CommandDoc& c) { return c.name() == command->get_name(); });
    if (below == doc.commands.end()) return "";
    const CommandDoc next = *below;  // it lies in what is assigned
    doc = next;
  }
  if (doc.commands.empty() || doc.takes_arguments()) return "";
  return fmt::format("{}: no command is given; the commands are {}", doc.path,
                     fmt::join(names_below(doc), ", "));
}

CommandDoc command_tree(const CLI::App& app) {
  return document(app, "");
}

std::vector<const CommandDoc*> all_commands(const CommandDoc& root) {
  std::vector<const CommandDoc*> all;
  collect(root, all);
  return all;
}

std::string usage_of(const CommandDoc& command) {
  std::string usage = command.path;
  if (!command.commands.empty() && !command.takes_arguments()) return usage + " COMMAND ...";
  usage += " [OPTIONS]";
  for (const OptionDoc& o : command.options) {
    if (!o.positional) continue;
    const std::string name = o.names[0] + (o.value.find("...") != std::string::npos ? " ..." : "");
    usage += o.required ? " " + name : " [" + name + "]";
  }
  return usage;
}

}  // namespace triax
