#include "launch/command_tree.h"

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

CommandDoc document(const CLI::App& app, const std::string& above) {
  CommandDoc doc;
  doc.path = (above.empty() ? "" : above + " ") + app.get_name();
  doc.doc = app.get_description();
  doc.footer = app.get_footer();
  for (const bool positional : {true, false})
    for (const CLI::Option* option : app.get_options())
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

}  // namespace

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
  if (!command.commands.empty()) return usage + " COMMAND ...";
  usage += " [OPTIONS]";
  for (const OptionDoc& o : command.options) {
    if (!o.positional) continue;
    const std::string name = o.names[0] + (o.value.find("...") != std::string::npos ? " ..." : "");
    usage += o.required ? " " + name : " [" + name + "]";
  }
  return usage;
}

}  // namespace triax
