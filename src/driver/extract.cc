#include "lathe/driver/extract.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
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

void FeedArguments(Builder& b, const Block& body, IrMapping& mapping) {
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    const std::string name = StrCat("in", i);
    b.set_location(Location::Name(b.context(), name));
    const NamedAttribute named[] = {b.Named("name", b.Attr(name))};
    const Type type = body.argument(i).type();
    mapping.Map(body.argument(i), b.Create(nn::kFeed, {}, named, {&type, 1})->result(0));
  }
}

void CopyCallees(const Operation* function, const FunctionTable& functions, Block* to) {
  std::vector<Operation*> calls = functions.CallsIn(const_cast<Operation*>(function));
  std::unordered_set<const Operation*> copied;  // asked, never iterated
  while (!calls.empty()) {
    Operation* callee = functions.Callee(calls.back());
    calls.pop_back();
    if (callee == nullptr || !copied.insert(callee).second) continue;
    IrMapping mapping;
    Builder::AtEnd(to).Insert(Clone(callee, mapping));
    const std::vector<Operation*> more = functions.CallsIn(callee);
    calls.insert(calls.end(), more.begin(), more.end());
  }
}

void ShareParameters(Program& program, const Program& from) {
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    const auto read = op->dyn_cast<builtin::GetParameterOp>();
    const Variable* weight = read ? from.parameters().Find(read.name()) : nullptr;
    if (weight == nullptr || program.parameters().Find(read.name()) != nullptr) continue;
    program.parameters().Insert(StrAttribute::Get(program.context(), read.name()), {weight->data});
  }
}

}  // namespace

Program FunctionProgram(const Operation* function, const Program& program) {
  Program own(*function->context());
  Builder b = Builder::AtEnd(own.block());
  const Block& body = *FunctionTable::Body(function);
  const Operation* end = FunctionTable::Return(function);
  IrMapping mapping;
  FeedArguments(b, body, mapping);
  for (const Operation& op : body) {
    if (&op != end) b.Insert(Clone(&op, mapping));
  }
  for (size_t i = 0; i < end->num_operands(); ++i) {
    FetchValue(own, StrCat("out", i), mapping.Lookup(end->operand(i)));
  }
  CopyCallees(function, FunctionTable(program), own.block());
  ShareParameters(own, program);
  return own;
}

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
