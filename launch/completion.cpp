// Completion scripts: what a command offers is written into the script, so that a Tab starts no process.
#include <fmt/format.h>

#include "core/error.h"
#include "launch/command_tree.h"

namespace triax {

namespace {

using Commands = std::vector<const CommandDoc*>;

// In single quotes, for a shell in which a backslash in them is itself (bash, zsh).
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// fish reads \\ and \' in single quotes.
std::string quoted_for_fish(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += (c == '\'' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

std::string words_of(const CommandDoc& c, bool commands) {
  std::string words;
  if (commands)
    for (const CommandDoc& below : c.commands) words += (words.empty() ? "" : " ") + below.name();
  else
    for (const OptionDoc& o : c.options)
      if (!o.positional)
        for (const std::string& name : o.names) words += (words.empty() ? "" : " ") + name;
  return words;
}

std::string key_words(const std::vector<std::string>& keys) {
  std::string words;
  for (const std::string& key : keys) words += (words.empty() ? "" : " ") + key + "=";
  return words;
}

// The loop that finds which command the line has reached; bash and zsh read it alike. `words` and `first`
// name the shell's array and its first index behind the program's name.
std::string find_command(const Commands& all, const std::string& words, int first, const std::string& end) {
  std::string paths;
  for (const CommandDoc* c : all)
    if (c->path != "triax") paths += (paths.empty() ? "" : "|") + in_quotes(c->path);
  return fmt::format(
      "  for ((i = {}; i < {}; i++)); do\n"
      "    case \"$command ${{{}[i]}}\" in\n"
      "      {}) command=\"$command ${{{}[i]}}\"; reached=$i ;;\n"
      "    esac\n"
      "  done\n",
      first, end, words, paths, words);
}

std::string bash(const Commands& all, const std::vector<std::string>& keys) {
  std::string out =
      "# bash completion for triax, written by `triax completion bash`\n"
      "_triax() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=triax options= "
      "commands= values= files= i reached=0\n"
      "  # Readline splits at '='; key=value is one word here.\n"
      "  COMPREPLY=()\n";
  out += find_command(all, "COMP_WORDS", 1, "COMP_CWORD");
  out += "  case $command in\n";
  for (const CommandDoc* c : all) {
    std::string values;
    for (const OptionDoc& o : c->options)
      if (!o.positional && o.takes_value())
        for (const std::string& name : o.names) values += (values.empty() ? "" : " ") + name;
    out += fmt::format("    {}) options={} commands={} values={} files={} ;;\n", in_quotes(c->path),
                       in_quotes(words_of(*c, false)), in_quotes(words_of(*c, true)), in_quotes(values),
                       c->takes_arguments() ? "yes" : "");
  }
  out += fmt::format(
      "  esac\n"
      "  if [[ $prev == --set ]]; then\n"
      "    compopt -o nospace\n"
      "    COMPREPLY=($(compgen -W {} -- \"$cur\"))\n"
      "  elif [[ \" $values \" == *\" $prev \"* ]]; then\n"
      "    compopt -o default\n"
      "  elif [[ $cur == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
      "  elif [[ -n $commands ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\"))\n"
      "    if [[ -n $files ]]; then\n"
      "      compopt -o filenames\n"
      "      while IFS= read -r i; do COMPREPLY+=(\"$i\"); done < <(compgen -f -- \"$cur\")\n"
      "    fi\n"
      "  else\n"
      "    compopt -o default\n"
      "  fi\n"
      "}}\n"
      "complete -F _triax triax\n",
      in_quotes(key_words(keys)));
  return out;
}

// _arguments takes brackets and colons for its own.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += (c == '[' || c == ']' || c == ':' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string zsh(const Commands& all, const std::vector<std::string>& keys) {
  std::string out =
      "#compdef triax\n"
      "# zsh completion for triax, written by `triax completion zsh`\n"
      "_triax() {\n"
      "  local command=triax i reached=1\n"
      "  local -a below\n";
  out += find_command(all, "words", 2, "CURRENT");
  out +=
      "  # What stands before the command's own arguments is not theirs.\n"
      "  words=(\"${(@)words[reached,-1]}\")\n"
      "  (( CURRENT -= reached - 1 ))\n"
      "  case $command in\n";
  for (const CommandDoc* c : all) {
    out += fmt::format("    {})\n", in_quotes(c->path));
    std::string arguments;
    for (const OptionDoc& o : c->options) {
      if (o.positional) continue;
      for (const std::string& name : o.names) {
        const std::string action = name == "--set"   ? ":key:compadd -S \"\" -- " + key_words(keys)
                                   : o.takes_value() ? ":value:_files"
                                                     : "";
        arguments += fmt::format(" \\\n        {}",
                                 in_quotes(fmt::format("*{}[{}]{}", name, zsh_text(o.doc), action)));
      }
    }
    if (!c->commands.empty()) {
      out += "      below=(";
      for (const CommandDoc& b : c->commands)
        out += in_quotes(zsh_text(b.name()) + ":" + zsh_text(b.doc)) + " ";
      out += ")\n      _arguments" + arguments + " \\\n        " +
             (c->takes_arguments() ? "'1:command or file:{ _describe command below; _files }' '*:file:_files'"
                                   : "'1:command:{ _describe command below }'") +
             " ;;\n";
    } else {
      out += "      _arguments" + arguments + " \\\n        '*:file:_files' ;;\n";
    }
  }
  return out +
         "  esac\n}\nif [[ $funcstack[1] == _triax ]]; then _triax \"$@\"; else compdef _triax triax; fi\n";
}

std::string fish(const Commands& all, const std::vector<std::string>& keys) {
  std::string out =
      "# fish completion for triax, written by `triax completion fish`\n"
      "function __triax_at\n"
      "    set -l command triax\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        switch \"$command $word\"\n"
      "            case";
  for (const CommandDoc* c : all)
    if (c->path != "triax") out += " " + quoted_for_fish(c->path);
  out +=
      "\n                set command \"$command $word\"\n"
      "        end\n"
      "    end\n"
      "    test \"$command\" = \"$argv[1]\"\n"
      "end\n";
  for (const CommandDoc* c : all) {
    const std::string at = fmt::format("complete -c triax -n \"__triax_at '{}'\"", c->path);
    for (const CommandDoc& b : c->commands)
      out += fmt::format("{}{} -a {} -d {}\n", at, c->takes_arguments() ? "" : " -f", b.name(),
                         quoted_for_fish(b.doc));
    for (const OptionDoc& o : c->options) {
      if (o.positional) continue;
      std::string names;
      for (const std::string& name : o.names)
        names += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const std::string value = names == " -l set" ? " -x -a " + quoted_for_fish(key_words(keys))
                                : o.takes_value()  ? " -r"
                                                   : "";
      out += fmt::format("{}{}{} -d {}\n", at, names, value, quoted_for_fish(o.doc));
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CommandDoc& root, const std::string& shell,
                              const std::vector<std::string>& keys) {
  const Commands all = all_commands(root);
  if (shell == "bash") return bash(all, keys);
  if (shell == "zsh") return zsh(all, keys);
  if (shell == "fish") return fish(all, keys);
  fail_usage("completion: {}: unknown shell; it can be bash, zsh or fish", shell);
}

}  // namespace triax
