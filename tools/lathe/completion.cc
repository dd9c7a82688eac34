#include <map>
#include <memory>

#include "lathe/support/error.h"
#include "tools/lathe/command.h"
#include "tools/lathe/option_table.h"
#include "tools/lathe/shell.h"

namespace lathe::command {
namespace {

const std::vector<std::string>& Shells() {
  static const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  return shells;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> NamesOf(const std::vector<CommandEntry>& commands) {
  std::vector<std::string> names;
  for (const CommandEntry& command : commands) names.push_back(command.name);
  return names;
}

// What a command takes beside options and files.
std::vector<std::string> WordsFor(const CommandEntry& command,
                                  const std::vector<CommandEntry>& commands) {
  if (command.name == "help") return NamesOf(commands);
  return command.name == "completion" ? Shells() : std::vector<std::string>();
}

// "--disable|--enable" and the words that these options take.
std::map<std::string, std::string> ChoicesByOptions(const CommandEntry& command) {
  std::map<std::string, std::string> options;  // by the words
  for (const OptionEntry& option : command.options) {
    if (option.choices.empty()) continue;
    std::string& names = options[Joined(option.choices)];
    for (const std::string& name : option.names) names += (names.empty() ? "" : "|") + name;
  }
  return options;
}

std::string Bash(const std::vector<CommandEntry>& commands) {
  std::string text =
      "_lathe() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local options= words= choices=\n"
      "  if [ \"$current\" = = ]; then current=; fi\n"
      "  if [ \"$previous\" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  text += StrCat("    words=", ShellQuoted(Joined(NamesOf(commands))), "\n  else\n",
                 "    case ${COMP_WORDS[1]} in\n");
  for (const CommandEntry& command : commands) {
    std::vector<std::string> names;
    for (const OptionEntry& option : command.options) names.push_back(option.names.back());
    text += StrCat("      ", command.name, ") options=", ShellQuoted(Joined(names)),
                   " words=", ShellQuoted(Joined(WordsFor(command, commands))), "\n");
    text += "        case $previous in\n";
    for (const auto& [words, given] : ChoicesByOptions(command)) {
      text += StrCat("          ", given, ") choices=", ShellQuoted(words), " ;;\n");
    }
    text += "        esac ;;\n";
  }
  return text +
         "    esac\n"
         "  fi\n"
         "  case $current in -*) words=$options ;; esac\n"
         "  if [ -n \"$choices\" ]; then words=$choices; fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _lathe lathe\n";
}

// "name:what it is", as _describe takes it.
std::string Described(const std::string& name, const std::string& about) {
  return ShellQuoted(about.empty() ? name : StrCat(name, ":", about));
}

std::string Zsh(const std::vector<CommandEntry>& commands) {
  std::string text =
      "#compdef lathe\n"
      "_lathe() {\n"
      "  local -a commands options words_taken choices\n"
      "  local option=$words[CURRENT-1]\n"
      "  if [[ $words[CURRENT] == --*=* ]]; then\n"
      "    option=${words[CURRENT]%%=*}\n"
      "    compset -P '*='\n"
      "  fi\n"
      "  commands=(\n";
  for (const CommandEntry& c : commands) text += StrCat("    ", Described(c.name, c.about), "\n");
  text +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n";
  for (const CommandEntry& command : commands) {
    text += StrCat("    ", command.name, ")\n      options=(\n");
    for (const OptionEntry& option : command.options) {
      text += StrCat("        ", Described(option.names.back(), option.about), "\n");
    }
    text += StrCat("      )\n      words_taken=(", Joined(WordsFor(command, commands)),
                   ")\n      case $option in\n");
    for (const auto& [words, given] : ChoicesByOptions(command)) {
      text += StrCat("        ", given, ") choices=(", words, ") ;;\n");
    }
    text += "      esac\n      ;;\n";
  }
  return text +
         "  esac\n"
         "  if (( $#choices )); then\n"
         "    compadd -a choices\n"
         "  elif [[ $words[CURRENT] == -* ]]; then\n"
         "    _describe option options\n"
         "  elif (( $#words_taken )); then\n"
         "    compadd -a words_taken\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ $funcstack[1] == _lathe ]]; then _lathe \"$@\"; else compdef _lathe lathe; fi\n";
}

// In quotes of fish only \ and ' have a meaning.
std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return quoted + "'";
}

std::string FishOption(const std::string& command, const OptionEntry& option) {
  std::string text = StrCat("complete -c lathe -n '__fish_seen_subcommand_from ", command, "'");
  for (const std::string& name : option.names) {
    text +=
        name.starts_with("--") ? StrCat(" -l ", name.substr(2)) : StrCat(" -s ", name.substr(1));
  }
  if (!option.value.empty()) text += " -r";
  if (!option.choices.empty()) text += StrCat(" -f -a ", FishQuoted(Joined(option.choices)));
  return StrCat(text, " -d ", FishQuoted(option.about), "\n");
}

std::string Fish(const std::vector<CommandEntry>& commands) {
  std::string text;
  for (const CommandEntry& command : commands) {
    text += StrCat("complete -c lathe -n __fish_use_subcommand -f -a ", command.name, " -d ",
                   FishQuoted(command.about), "\n");
  }
  for (const CommandEntry& command : commands) {
    for (const OptionEntry& option : command.options) text += FishOption(command.name, option);
    const std::vector<std::string> words = WordsFor(command, commands);
    if (words.empty()) continue;
    text += StrCat("complete -c lathe -n '__fish_seen_subcommand_from ", command.name, "' -f -a ",
                   FishQuoted(Joined(words)), "\n");
  }
  return text;
}

}  // namespace

std::string CompletionScript(const std::string& shell, const std::vector<CommandEntry>& commands) {
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  return shell == "fish" ? Fish(commands) : "";
}

Run AddCompletion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")->required();
  return [shell, &app] {
    const std::string script = CompletionScript(*shell, EntriesOf(*app.get_parent()));
    if (script.empty()) {
      throw UsageError(StrCat("there is no completion for '", *shell, "', but for bash, zsh, fish"),
                       DidYouMean(*shell, Shells()));
    }
    Out(script);
    return kFine;
  };
}

}  // namespace lathe::command
