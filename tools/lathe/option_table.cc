#include "tools/lathe/option_table.h"

namespace lathe::command {

CommandEntry EntryOf(const CLI::App& command) {
  CommandEntry entry{command.get_name(), command.get_description(), {}, {}};
  for (const CLI::Option* option : command.get_options()) {
    OptionEntry o{{}, "", option->get_description()};
    for (const std::string& name : option->get_snames()) o.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) o.names.push_back("--" + name);
    const bool is_positional = o.names.empty();
    if (is_positional) o.names.push_back(option->get_name(/*positional=*/true));
    // Of "INT:INT in [0 - 1024]" the part that is a word.
    const std::string type = option->get_type_name();
    if (option->get_items_expected_max() > 0 && !is_positional) {
      o.value = type.substr(0, type.find_first_of(": "));
    }
    (is_positional ? entry.positionals : entry.options).push_back(std::move(o));
  }
  return entry;
}

std::vector<CommandEntry> EntriesOf(const CLI::App& app) {
  std::vector<CommandEntry> entries;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    entries.push_back(EntryOf(*command));
  }
  return entries;
}

}  // namespace lathe::command
