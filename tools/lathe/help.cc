#include <fmt/format.h>

#include <memory>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/version.h"
#include "tools/lathe/command.h"
#include "tools/lathe/option_table.h"

namespace lathe::command {
namespace {

// Text of a manual page: no character is a request.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool at_start = out.empty() || out.back() == '\n';
    if (at_start && (c == '.' || c == '\'')) out += "\\&";
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string{c};
  }
  return out;
}

std::string Title(const std::string& page) {
  return fmt::format(".TH {} 1 \"\" \"lathe {}\" \"Lathe\"\n", page, Version());
}

std::string Item(const OptionEntry& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
  return fmt::format(".TP\n.B {}{}\n{}\n", Escaped(names),
                     option.value.empty() ? "" : " \\fI" + Escaped(option.value) + "\\fR",
                     Escaped(option.about));
}

const char* kExitStatus =
    ".SH EXIT STATUS\n0 fine, 1 the input is at fault, 2 wrong usage, 3 a check failed, 70 a bug "
    "of "
    "Lathe.\n";

const CLI::App& CommandNamed(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return *command;
    names.push_back(command->get_name());
  }
  const std::string near = DidYouMean(name, names);
  throw UsageError(StrCat("there is no command '", name, "'"),
                   near.empty() ? "`lathe help` lists them" : near);
}

// CLI::App::help would explain the command that is running.
std::string Overview(const CLI::App& app) {
  return app.get_formatter()->make_help(&app, "lathe", CLI::AppFormatMode::Normal);
}

void WritePages(const std::string& folder, const CLI::App& app) {
  const std::vector<CommandEntry> commands = EntriesOf(app);
  MakeDirectory(folder);
  WriteFile(folder + "/lathe.1", ManualOverview(commands));
  for (const CommandEntry& command : commands) {
    WriteFile(StrCat(folder, "/lathe-", command.name, ".1"), ManualPage(command));
  }
}

}  // namespace

std::string ManualPage(const CommandEntry& command) {
  std::string text = Title("LATHE-" + command.name);
  text += fmt::format(".SH NAME\nlathe\\-{} \\- {}\n", command.name, Escaped(command.about));
  text += fmt::format(".SH SYNOPSIS\n.B lathe {}\n[options]", command.name);
  for (const OptionEntry& p : command.positionals) text += " \\fI" + Escaped(p.names[0]) + "\\fR";
  text += "\n.SH OPTIONS\n";
  for (const OptionEntry& positional : command.positionals) text += Item(positional);
  for (const OptionEntry& option : command.options) text += Item(option);
  return text + kExitStatus + ".SH SEE ALSO\n.BR lathe (1)\n";
}

std::string ManualOverview(const std::vector<CommandEntry>& commands) {
  std::string text = Title("LATHE");
  text +=
      ".SH NAME\nlathe \\- a deep\\-learning graph compiler and runtime\n"
      ".SH SYNOPSIS\n.B lathe\n\\fIcommand\\fR [options]\n.SH COMMANDS\n";
  for (const CommandEntry& command : commands) {
    text += fmt::format(".TP\n.BR lathe\\-{} (1)\n{}\n", command.name, Escaped(command.about));
  }
  return text + kExitStatus;
}

Run AddHelp(CLI::App& app) {
  struct Options {
    std::string command, pages;
    bool manual = false;
  };
  const auto o = std::make_shared<Options>();
  app.add_option("command", o->command, "the command to explain; none: all of them, in short");
  app.add_flag("--man", o->manual, "as a manual page, for man(1)");
  app.add_option("--man-pages", o->pages, "write the manual pages of all commands there")
      ->type_name("DIR");
  return [o, &app] {
    const CLI::App& root = *app.get_parent();
    if (!o->pages.empty()) {
      WritePages(o->pages, root);
    } else if (o->command.empty()) {
      Out(o->manual ? ManualOverview(EntriesOf(root)) : Overview(root));
    } else {
      const CLI::App& command = CommandNamed(root, o->command);
      Out(o->manual ? ManualPage(EntryOf(command)) : command.help("lathe"));
    }
    return kFine;
  };
}

}  // namespace lathe::command
