#include "lathe/driver/extract.h"

#include <algorithm>
#include <vector>

#include "lathe/driver/intermediate_values.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

bool Contains(std::span<const std::string> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// What is an output already, by its name or that of its value, stays; the others go.
void KeepOutputs(Program& program, std::span<const std::string> outputs) {
  std::vector<std::string> wanted;
  const std::vector<Operation*> fetches = program.fetches();
  for (const std::string& name : outputs) {
    const bool there = std::ranges::any_of(
        fetches, [&](const Operation* fetch) { return PortName(fetch) == name; });
    if (!there) wanted.push_back(name);
  }
  for (Operation* fetch : fetches) {
    if (!Contains(outputs, PortName(fetch))) fetch->Erase();
  }
  FetchValues(program, wanted);
}

// The results of values that are inputs now come from outside.
void MakeInputs(Program& program, std::span<const std::string> inputs) {
  const std::vector<Operation*> feeds = program.feeds();
  for (const std::string& name : inputs) {
    const bool there =
        std::ranges::any_of(feeds, [&](const Operation* feed) { return PortName(feed) == name; });
    if (there) continue;
    FeedValue(program, name, IntermediateValue(program, name));
  }
}

void EraseUnneeded(Program& program) {
  PassManager manager;
  manager.Add("dead_code");
  manager.Run(program);
  for (Operation* feed : program.feeds()) {
    if (feed->use_empty()) feed->Erase();
  }
}

}  // namespace

void Extract(Program& program, std::span<const std::string> inputs,
             std::span<const std::string> outputs) {
  if (!outputs.empty()) KeepOutputs(program, outputs);
  if (inputs.empty()) return EraseUnneeded(program);
  MakeInputs(program, inputs);
  EraseUnneeded(program);
  for (const Operation* feed : program.feeds()) {
    if (Contains(inputs, PortName(feed))) continue;
    throw Error(ErrorCode::kInvalidArgument, "extract/input",
                StrCat("the outputs need input '", PortName(feed), "', too"))
        .Hint(StrCat("add it to --inputs, or a value that stands between"));
  }
}

}  // namespace lathe
