#include <fmt/ranges.h>

#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

/// How the attributes of an op of one kind become those of another: by pairs of names; what is not
/// named keeps its name.
struct Mapping {
  OpInfo from, to;
  std::vector<std::pair<std::string, std::string>> names;

  std::string_view NameOf(std::string_view old) const {
    for (const auto& [before, after] : names) {
      if (before == old) return after;
    }
    return old;
  }
};

const AttrDef* FindAttr(const OpDef* def, std::string_view name) {
  if (def == nullptr) return nullptr;
  for (const AttrDef& a : def->attributes) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

bool HasDefault(const OpInfo& info, const NamedAttribute& a) {
  const auto names = info.impl()->attribute_names();
  const auto at = std::find(names.begin(), names.end(), a.name);
  return at != names.end() &&
         info.impl()->default_value(static_cast<size_t>(at - names.begin())) == a.value;
}

bool IsDeclared(const OpInfo& info, StrAttribute name) {
  const auto names = info.impl()->attribute_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::pair<std::string, std::string> ParsePair(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    throw Error(ErrorCode::kInvalidArgument, "map_op/attributes",
                StrCat("'", text, "' is not of the form old=new"));
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace

/// Operations of one kind become operations of another with the same operands.
class MapOpPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Mapping mapping = ReadMapping(graph.context());
    std::vector<Operation*> ops;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      if (op->info() == mapping.from) ops.push_back(op);
    }
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : ops) Map(op, mapping, rewriter);
  }

 private:
  Mapping ReadMapping(IrContext& context) const {
    Mapping mapping{context.GetOrMakeOp(option("from")), context.GetOrMakeOp(option("to")), {}};
    for (const std::string& text : option_list("attributes")) {
      mapping.names.push_back(ParsePair(text));
      CheckAttr(mapping.from, mapping.names.back().first);
      CheckAttr(mapping.to, mapping.names.back().second);
    }
    return mapping;
  }

  static void CheckAttr(const OpInfo& info, const std::string& name) {
    if (info.def() == nullptr || FindAttr(info.def(), name) != nullptr) return;
    std::vector<std::string> names;
    for (const AttrDef& a : info.def()->attributes) names.emplace_back(a.name);
    throw Error(ErrorCode::kNotFound, "map_op/attributes",
                StrCat(info.name(), " has no attribute '", name, "'"))
        .Hint(StrCat("it has ", fmt::format("{}", fmt::join(names, ", "))));
  }

  void Map(Operation* op, const Mapping& mapping, Rewriter& rewriter) {
    std::vector<NamedAttribute> attributes;
    for (const NamedAttribute& a : op->attributes().entries()) {
      if (mapping.from.def() != nullptr && !IsDeclared(mapping.from, a.name)) continue;
      const std::string_view name = mapping.NameOf(a.name.value());
      if (mapping.to.def() == nullptr || FindAttr(mapping.to.def(), name) != nullptr) {
        attributes.push_back(rewriter.Named(name, a.value));
      } else if (!HasDefault(mapping.from, a)) {
        return Missed(op, StrCat(mapping.to.name(), " has no attribute '", name, "'"));
      }
    }
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    Operation* const replaced[] = {op};
    const Rewriter::Replacing scope(rewriter, replaced);
    Operation* made = rewriter.Create(mapping.to.name(), operands, attributes, op->num_results());
    if (const auto wrong = Verify(made); !wrong.empty()) {
      Missed(op, StrCat(mapping.to.name(), " cannot stand there: ", wrong.front().message()));
      return rewriter.Erase(made);
    }
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (Compatible(made->result(i).type(), op->result(i).type())) continue;
      Missed(op, StrCat(mapping.to.name(), " gives ", made->result(i).type().ToString()));
      return rewriter.Erase(made);
    }
    std::vector<Value> results;
    for (size_t i = 0; i < op->num_results(); ++i) results.push_back(made->result(i));
    rewriter.ReplaceOp(op, results);
    Count("mapped");
  }
};

REGISTER_PASS(map_op, MapOpPass)
    .Doc("replaces operations of one kind by operations of another with the same operands")
    .Details(
        "Attributes keep their names or get those that `attributes` says. An op with an attribute "
        "that the other kind lacks stays, unless it has its default value; so does one whose "
        "result would have another type or that takes other operands. Whether both kinds mean the "
        "same is the caller's word.")
    .Option("from", PassOption::Kind::kString, "", "kind to replace")
    .Option("to", PassOption::Kind::kString, "", "kind to put")
    .Option("attributes", PassOption::Kind::kStrings, "[]", "renamings, such as [alpha=slope]");

}  // namespace lathe
