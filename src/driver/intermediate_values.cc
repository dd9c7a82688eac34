#include "lathe/driver/intermediate_values.h"

#include <algorithm>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/value_names.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/transform/fetch.h"

namespace lathe {
namespace {

constexpr std::string_view kGetParameter = builtin::kGetParameter;

bool IsIntermediate(const Operation& op) {
  return op.name() != nn::kFeed && op.name() != kGetParameter && op.name() != builtin::kConstant;
}

bool IsData(Type type) {
  return type.isa<AnyTensorType>() || type.isa<ListType>() || type.isa<OptionalType>();
}

// Why a name is not one of those, if the program has it somewhere else.
std::string WhyNot(const Program& program, const std::string& name) {
  const ValueNames names(program);
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (names.Of(op->result(i)) != name) continue;
      return op->block() == program.block()
                 ? "it is an input, a parameter or a constant"
                 : "it is made within a branch or a loop, which may run any number of times";
    }
  }
  return {};
}

Value ValueNamed(const Program& program, const std::vector<std::pair<std::string, Value>>& values,
                 const std::string& name) {
  const auto found = std::ranges::find(values, name, &std::pair<std::string, Value>::first);
  if (found != values.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, value] : values) names.push_back(known);
  Error error(ErrorCode::kNotFound, "run/value-name",
              StrCat("the program has no intermediate value '", name, "'"));
  if (const std::string why = WhyNot(program, name); !why.empty()) error.Note(why);
  if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
  throw std::move(error).Hint("`lathe inspect MODEL --nodes` lists them");
}

}  // namespace

ValueNames::ValueNames(const Program& program) {
  size_t number = 0;
  const auto add = [&](Value value, std::string_view name) {
    names_.emplace(value, name.empty() ? StrCat("%", number) : std::string(name));
    ++number;
  };
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto own = op->attribute("name").dyn_cast<StrAttribute>();
      const bool is_named = own && (op->name() == nn::kFeed || op->name() == kGetParameter);
      add(op->result(i), is_named ? own.value() : NameInFile(op->result(i)));
    }
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        for (size_t i = 0; i < block.num_arguments(); ++i) add(block.argument(i), {});
      }
    }
  }
}

std::string ValueNames::Of(Value value) const {
  return value ? names_.at(value) : std::string("none");
}

std::vector<std::pair<std::string, Value>> IntermediateValues(const Program& program) {
  const ValueNames names(program);
  std::vector<std::pair<std::string, Value>> values;
  for (const Operation& op : *program.block()) {
    if (!IsIntermediate(op)) continue;
    for (size_t i = 0; i < op.num_results(); ++i) {
      const Value value = op.result(i);
      if (IsData(value.type())) values.emplace_back(names.Of(value), value);
    }
  }
  return values;
}

Value IntermediateValue(const Program& program, const std::string& name) {
  return ValueNamed(program, IntermediateValues(program), name);
}

void FetchValues(Program& program, std::span<const std::string> names) {
  const auto values = IntermediateValues(program);
  std::vector<std::pair<std::string, Value>> wanted;
  for (const std::string& name : names) {
    if (name == "all") {
      wanted.insert(wanted.end(), values.begin(), values.end());
    } else {
      wanted.emplace_back(name, ValueNamed(program, values, name));
    }
  }
  std::vector<Value> fetched;
  for (const Operation* fetch : program.fetches()) fetched.push_back(fetch->operand(0));
  for (const auto& [name, value] : wanted) {
    if (std::ranges::find(fetched, value) != fetched.end()) continue;
    FetchValue(program, name, value);
    fetched.push_back(value);
  }
}

void FetchValue(Program& program, const std::string& name, Value value) {
  Fetch(program, name, value);
}

void FeedValue(Program& program, const std::string& name, Value value) {
  Builder b = Builder::Before(program.block()->front());
  b.set_location(Location::Name(program.context(), name));
  const NamedAttribute named[] = {b.Named("name", b.Attr(name))};
  const Type type = value.type();
  value.ReplaceAllUsesWith(b.Create(nn::kFeed, {}, named, {&type, 1})->result(0));
}

std::string PortName(const Operation* op) {
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  return name ? std::string(name.value()) : std::string();
}

}  // namespace lathe
