#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "src/frontend/symbol/node.h"

namespace lathe {

using symbol::Describe;
using symbol::Entries;
using symbol::NodePtr;

namespace {

Error ArgumentError(std::string id, std::string message) {
  return Error(ErrorCode::kInvalidArgument, std::move(id), std::move(message));
}

void CheckComposed(const SymbolEntry& entry) {
  if (entry.node->composed || entry.node->is_variable()) return;
  throw ArgumentError("symbol/no-arguments", StrCat(Describe(*entry.node), " has no arguments yet"))
      .Hint("compose it first");
}

std::vector<std::string> ArgumentNames(const OpDef& def) {
  std::vector<std::string> names;
  for (const ValueDef& v : def.operands) names.emplace_back(v.name);
  return names;
}

/// Puts arguments into the places that the op's declaration names.
class Arguments {
 public:
  explicit Arguments(SymbolNode& node)
      : node_(node), def_(*node.op.def()), places_(def_.operands.size()) {}

  void Positional(const Symbol::Args& args) {
    for (const Symbol& arg : args) {
      for (const SymbolEntry& e : arg.outputs()) CheckComposed(e);
      const bool in_tail = !def_.operands.empty() && def_.operands.back().variadic &&
                           next_ + 1 >= def_.operands.size();
      if (in_tail) {
        Append(places_.back(), arg.outputs());
        next_ = def_.operands.size() - 1;
        continue;
      }
      if (next_ == def_.operands.size()) {
        throw ArgumentError("symbol/too-many-arguments",
                            StrCat(Describe(node_), " takes at most ", def_.operands.size(),
                                   " arguments, not ", args.size()));
      }
      Put(next_++, arg);
    }
  }

  void Named(const Symbol::Kwargs& kwargs) {
    const std::vector<std::string> names = ArgumentNames(def_);
    for (const auto& [name, arg] : kwargs) {
      const auto at = std::find(names.begin(), names.end(), name);
      if (at == names.end()) {
        Error error = ArgumentError("symbol/unknown-argument",
                                    StrCat(Describe(node_), " has no argument '", name, "'"));
        if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
        throw error.Hint(StrCat("its arguments: ", Listed(names)));
      }
      const auto i = static_cast<size_t>(at - names.begin());
      if (!places_[i].empty()) {
        throw ArgumentError(
            "symbol/duplicate-argument",
            StrCat("argument '", name, "' of ", Describe(node_), " is given twice"));
      }
      for (const SymbolEntry& e : arg.outputs()) CheckComposed(e);
      if (def_.operands[i].variadic) {
        Append(places_[i], arg.outputs());
      } else {
        Put(i, arg);
      }
    }
  }

  /// Variables for what a layer lacks; an error for what another op lacks.
  void Missing() {
    const auto learned = symbol::LearnedOf(node_);
    for (size_t i = 0; i < places_.size(); ++i) {
      const ValueDef& v = def_.operands[i];
      if (v.variadic ? places_[i].size() >= v.min_count : !places_[i].empty()) continue;
      if (v.optional && !symbol::WantsOptional(node_, learned.get(), i)) continue;
      if (v.variadic || (learned == nullptr && !v.optional)) ThrowMissing(v, places_[i].size());
      auto variable = std::make_shared<SymbolNode>(
          *node_.context, OpInfo(),
          node_.name.empty() ? std::string(v.name) : StrCat(node_.name, "_", v.name));
      variable->attrs = symbol::RuntimeAttrs(node_);
      places_[i].push_back({std::move(variable), 0, 0});
    }
  }

  /// The operands in order, absent ones as null entries but for a tail of them.
  Entries Take() {
    Entries inputs;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].empty() && !def_.operands[i].variadic) places_[i].emplace_back();
      Append(inputs, places_[i]);
    }
    while (!inputs.empty() && inputs.back().node == nullptr) inputs.pop_back();
    return inputs;
  }

 private:
  static void Append(Entries& to, const Entries& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  static std::string Listed(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& n : names) list += StrCat(list.empty() ? "" : ", ", n);
    return list;
  }

  void Put(size_t i, const Symbol& arg) {
    if (arg.num_outputs() != 1) {
      throw ArgumentError("symbol/many-outputs",
                          StrCat("argument '", def_.operands[i].name, "' of ", Describe(node_),
                                 " is one value, but the symbol given has ", arg.num_outputs()))
          .Hint("pick one with operator[]");
    }
    places_[i] = arg.outputs();
  }

  [[noreturn]] void ThrowMissing(const ValueDef& v, size_t given) const {
    throw ArgumentError("symbol/missing-argument",
                        v.variadic ? StrCat(Describe(node_), " needs at least ", v.min_count, " '",
                                            v.name, "', not ", given)
                                   : StrCat(Describe(node_), " lacks its argument '", v.name, "'"))
        .Hint(StrCat("its arguments: ", Listed(ArgumentNames(def_))));
  }

  SymbolNode& node_;
  const OpDef& def_;
  std::vector<Entries> places_;
  size_t next_ = 0;
};

void CheckRequiredAttrs(const SymbolNode& node) {
  for (const AttrDef& def : node.op.def()->attributes) {
    if (def.optional || def.default_text != nullptr || node.attrs.count(def.name) != 0) continue;
    throw ArgumentError("symbol/missing-attribute",
                        StrCat(Describe(node), " lacks its attribute '", def.name, "'"))
        .Hint(def.doc);
  }
}

}  // namespace

// ---- making ----

Symbol Symbol::CreateVariable(IrContext& context, std::string_view name, SymbolAttrs attrs) {
  auto node = std::make_shared<SymbolNode>(context, OpInfo(), name);
  for (auto& [key, text] : attrs) node->attrs[key] = std::move(text);
  return Symbol({{std::move(node), 0, 0}});
}

Symbol Symbol::CreateFunctor(OpInfo op, const SymbolAttrs& attrs) {
  const OpDef* def = op.def();
  if (def == nullptr || !def->regions.empty() || def->results.empty()) {
    const char* why = def == nullptr          ? "has no declaration"
                      : !def->regions.empty() ? "has regions"
                                              : "has no result";
    throw Error(ErrorCode::kUnsupported, "symbol/op",
                StrCat("a symbol cannot be made of '", op.name(), "': it ", why))
        .Hint("build such a program with Builder");
  }
  auto node = std::make_shared<SymbolNode>(*op.context(), op, "");
  for (const auto& [key, text] : attrs) {
    symbol::CheckAttr(*node, key, text);
    node->attrs[key] = text;
  }
  Entries outputs = symbol::VisibleOutputs(node);
  return Symbol(std::move(outputs));
}

Symbol Symbol::CreateFunctor(IrContext& context, std::string_view op, const SymbolAttrs& attrs) {
  return CreateFunctor(context.GetOrMakeOp(op), attrs);
}

Symbol Symbol::CreateGroup(const std::vector<Symbol>& symbols) {
  Entries outputs;
  for (const Symbol& s : symbols) {
    outputs.insert(outputs.end(), s.outputs_.begin(), s.outputs_.end());
  }
  if (outputs.empty()) throw ArgumentError("symbol/empty-group", "a group needs a symbol");
  return Symbol(std::move(outputs));
}

// ---- composition ----

void Symbol::Compose(const Args& args, const Kwargs& kwargs, std::string_view name) {
  SymbolNode& node = *outputs_.front().node;
  if (node.is_variable() && !args.empty()) {
    throw ArgumentError("symbol/variable-arguments",
                        StrCat(Describe(node), " is not an op and takes no arguments"));
  }
  const std::string old_name = node.name;
  if (!name.empty()) OnlyNode("a name").name = name;
  try {
    if (node.is_variable() || node.composed) {
      if (!args.empty()) {
        throw ArgumentError("symbol/has-arguments",
                            StrCat(Describe(node),
                                   " has its arguments; variables are replaced "
                                   "by name"));
      }
      ReplaceVariables(kwargs);
    } else {
      ComposeFunctor(node, args, kwargs);
    }
  } catch (...) {
    node.name = old_name;
    throw;
  }
}

void Symbol::ComposeFunctor(SymbolNode& node, const Args& args, const Kwargs& kwargs) {
  CheckRequiredAttrs(node);
  Arguments arguments(node);
  arguments.Positional(args);
  arguments.Named(kwargs);
  arguments.Missing();
  node.inputs = arguments.Take();
  try {
    symbol::UpdateVersions(node);
  } catch (...) {
    node.inputs.clear();
    throw;
  }
  node.composed = true;
}

void Symbol::ReplaceVariables(const Kwargs& kwargs) {
  const std::vector<SymbolNode*> nodes = symbol::PostOrder(outputs_);
  std::unordered_map<std::string, SymbolEntry> by_name;  // look-up only
  for (const auto& [name, replacement] : kwargs) {
    const std::vector<std::string> names = ListInputNames();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Error error =
          ArgumentError("symbol/unknown-argument", StrCat("there is no variable '", name, "'"));
      if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
      throw error;
    }
    if (replacement.num_outputs() != 1) {
      throw ArgumentError("symbol/many-outputs",
                          StrCat("variable '", name, "' is one value, but the symbol given has ",
                                 replacement.num_outputs()));
    }
    CheckComposed(replacement.outputs_[0]);
    if (!by_name.emplace(name, replacement.outputs_[0]).second) {
      throw ArgumentError("symbol/duplicate-argument",
                          StrCat("variable '", name, "' is given twice"));
    }
  }
  const auto replacement_of = [&](const SymbolEntry& e) {
    if (e.node == nullptr || !e.node->is_variable()) return by_name.end();
    return by_name.find(e.node->name);
  };

  // First everything is looked at, then everything is changed.
  std::vector<SymbolNode*> touched;
  for (SymbolNode* node : nodes) {
    bool changes = false;
    for (const SymbolEntry& e : node->inputs) changes |= replacement_of(e) != by_name.end();
    if (!changes) continue;
    touched.push_back(node);
    for (const symbol::Write& w : symbol::WritesOf(*node)) {
      const auto at = replacement_of(node->inputs[w.operand]);
      if (!w.changes || at == by_name.end() || at->second.node->is_variable()) continue;
      throw ArgumentError("symbol/write",
                          StrCat(Describe(*node), " writes variable '", at->first, "', which ",
                                 Describe(*at->second.node), " cannot replace"));
    }
  }
  Entries replacements;
  for (const auto& [name, replacement] : kwargs) replacements.push_back(replacement.outputs_[0]);
  std::unordered_set<const SymbolNode*> inside;  // asked only whether it holds a node
  for (const SymbolNode* node : symbol::PostOrder(replacements)) inside.insert(node);
  for (const SymbolNode* node : touched) {
    if (inside.count(node) == 0) continue;
    throw ArgumentError("symbol/cycle", StrCat("what is to replace a variable reads ",
                                               Describe(*node), ", which reads that variable"))
        .Hint("compose a Copy()");
  }
  for (SymbolNode* node : touched) {
    for (SymbolEntry& e : node->inputs) {
      if (const auto at = replacement_of(e); at != by_name.end()) e = at->second;
    }
    symbol::UpdateVersions(*node);
  }
  for (SymbolEntry& e : outputs_) {
    if (const auto at = replacement_of(e); at != by_name.end()) e = at->second;
  }
}

Symbol Symbol::operator()(const Args& args, const Kwargs& kwargs, std::string_view name) const {
  Symbol copy = Copy();
  copy.Compose(args, kwargs, name);
  return copy;
}

Symbol Symbol::Copy() const {
  std::unordered_map<const SymbolNode*, NodePtr> copies;  // look-up only
  for (const SymbolNode* node : symbol::PostOrder(outputs_)) {
    auto copy = std::make_shared<SymbolNode>(*node);
    for (SymbolEntry& e : copy->inputs) {
      if (e.node) e.node = copies.at(e.node.get());
    }
    for (NodePtr& d : copy->control_deps) d = copies.at(d.get());
    copies.emplace(node, std::move(copy));
  }
  Entries outputs = outputs_;
  for (SymbolEntry& e : outputs) e.node = copies.at(e.node.get());
  return Symbol(std::move(outputs));
}

void Symbol::AddControlDeps(const Symbol& src) {
  if (num_outputs() != 1 || outputs_[0].node->is_variable() || outputs_[0].node->inputs.empty()) {
    throw ArgumentError("symbol/control-dep",
                        "what waits must be one op with one output and an argument");
  }
  const NodePtr& node = outputs_[0].node;
  for (const SymbolNode* before : symbol::PostOrder(src.outputs_)) {
    if (before != node.get()) continue;
    throw ArgumentError("symbol/cycle",
                        StrCat("what ", Describe(*node), " is to wait for reads it"));
  }
  for (const SymbolEntry& e : src.outputs_) {
    CheckComposed(e);
    std::vector<NodePtr>& deps = node->control_deps;
    if (std::find(deps.begin(), deps.end(), e.node) == deps.end()) deps.push_back(e.node);
  }
}

}  // namespace lathe
