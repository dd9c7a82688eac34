#include "tools/lathe/option_table.h"

#include <ranges>

#include "lathe/codegen/target.h"
#include "lathe/driver/emit.h"
#include "lathe/lower/precision.h"
#include "lathe/pass/pass.h"

namespace lathe::command {
namespace {

// "TEXT:{unit,raw}" lists its words; of some kinds of values all are known.
std::vector<std::string> ChoicesOf(const std::string& kind, const std::string& type) {
  std::vector<std::string> words;
  if (kind == "PASS") {
    for (const PassInfo* pass : PassRegistry::Global().All()) words.push_back(pass->name);
  } else if (kind == "TARGET") {
    for (const codegen::Target& target : codegen::Target::All()) words.push_back(target.name);
  } else if (kind == "PRECISION") {
    for (const std::string_view name : PrecisionNames()) words.emplace_back(name);
  } else if (kind == "STAGE") {
    for (const std::string_view name : StageNames()) words.emplace_back(name);
  } else if (const size_t open = type.find('{'); open != std::string::npos) {
    const std::string_view list =
        std::string_view(type).substr(open + 1, type.find('}') - open - 1);
    for (const auto word : std::views::split(list, ','))
      words.emplace_back(word.begin(), word.end());
  }
  return words;
}

}  // namespace

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
      o.choices = ChoicesOf(o.value, type);
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
