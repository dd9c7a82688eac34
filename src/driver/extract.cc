#include "lathe/driver/extract.h"

#include <algorithm>
#include <vector>

#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

std::string NameOf(const Operation* op) {
  return std::string(op->attribute("name").cast<StrAttribute>().value());
}

bool Contains(std::span<const std::string> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// What is an output already, by its name or that of its value, stays; the others go.
void KeepOutputs(Program& program, std::span<const std::string> outputs) {
  std::vector<std::string> wanted;
  const std::vector<Operation*> fetches = program.fetches();
  for (const std::string& name : outputs) {
    const bool there =
        std::ranges::any_of(fetches, [&](const Operation* fetch) { return NameOf(fetch) == name; });
    if (!there) wanted.push_back(name);
  }
  for (Operation* fetch : fetches) {
    if (!Contains(outputs, NameOf(fetch))) fetch->Erase();
  }
  FetchValues(program, wanted);
}

// The results of values that are inputs now come from outside.
void MakeInputs(Program& program, std::span<const std::string> inputs) {
  const std::vector<Operation*> feeds = program.feeds();
  for (const std::string& name : inputs) {
    const bool there =
        std::ranges::any_of(feeds, [&](const Operation* feed) { return NameOf(feed) == name; });
    if (there) continue;
    const Value value = IntermediateValue(program, name);
    Builder b = Builder::Before(program.block()->front());
    b.set_location(Location::Name(program.context(), name));
    const NamedAttribute named[] = {b.Named("name", b.Attr(name))};
    const Type type = value.type();
    value.ReplaceAllUsesWith(b.Create("nn.feed", {}, named, {&type, 1})->result(0));
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
    if (Contains(inputs, NameOf(feed))) continue;
    throw Error(ErrorCode::kInvalidArgument, "extract/input",
                StrCat("the outputs need input '", NameOf(feed), "', too"))
        .Hint(StrCat("add it to --inputs, or a value that stands between"));
  }
}

}  // namespace lathe
