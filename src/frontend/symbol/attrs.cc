#include <algorithm>
#include <optional>

#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"
#include "src/frontend/symbol/node.h"

namespace lathe {

namespace symbol {
namespace {

const AttrDef* Declared(const SymbolNode& node, std::string_view key) {
  if (node.is_variable()) return nullptr;
  for (const AttrDef& def : node.op.def()->attributes) {
    if (key == def.name) return &def;
  }
  return nullptr;
}

const char* Words(AttrKind kind) {
  switch (kind) {
    case AttrKind::kBool:
      return "true or false";
    case AttrKind::kInt:
      return "an integer";
    case AttrKind::kFloat:
      return "a number";
    case AttrKind::kInts:
      return "a list of integers";
    case AttrKind::kFloats:
      return "a list of numbers";
    case AttrKind::kStrs:
      return "a list of strings";
    case AttrKind::kType:
      return "an element type";
    case AttrKind::kTensor:
      return "a number or a tensor";
    default:
      return "an attribute in the text form";
  }
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Elements of "[1, 2]", "(1, 2)" or "1, 2".
std::vector<std::string_view> ListElements(std::string_view text) {
  text = Trimmed(text);
  const bool bracketed = text.size() >= 2 && ((text.front() == '[' && text.back() == ']') ||
                                              (text.front() == '(' && text.back() == ')'));
  if (bracketed) text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> elements;
  while (!Trimmed(text).empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    elements.push_back(Trimmed(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return elements;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  return std::nullopt;
}

template <class T, class Parse>
Attribute ParseEach(IrContext& context, std::string_view text, Parse parse) {
  std::vector<T> values;
  for (const std::string_view element : ListElements(text)) {
    const auto value = parse(element);
    if (!value) return Attribute();
    values.push_back(*value);
  }
  return ArrayAttribute::Get(context, std::span<const T>(values));
}

Attribute ParseStrings(IrContext& context, std::string_view text) {
  std::vector<std::string> values;
  for (std::string_view element : ListElements(text)) {
    if (element.size() >= 2 && element.front() == '"') {
      element = element.substr(1, element.size() - 2);
    }
    values.emplace_back(element);
  }
  return ArrayAttribute::Get(context, std::span<const std::string>(values));
}

Attribute ParseText(IrContext& context, std::string_view text) {
  try {
    return ParseAttribute(context, text);
  } catch (const Error&) {
    return Attribute();
  }
}

/// Null if the text is not of that kind.
Attribute ParseAs(IrContext& context, AttrKind kind, const std::string& text) {
  switch (kind) {
    case AttrKind::kStr:
      return StrAttribute::Get(context, text);
    case AttrKind::kBool: {
      const auto value = ParseBool(text);
      return value ? BoolAttribute::Get(context, *value) : Attribute();
    }
    case AttrKind::kInt: {
      const auto value = ParseInt(text);
      return value ? IntAttribute::Get(context, *value) : Attribute();
    }
    case AttrKind::kFloat: {
      const auto value = ParseDouble(text);
      return value ? FloatAttribute::Get(context, *value) : Attribute();
    }
    case AttrKind::kInts:
      return ParseEach<int64_t>(context, text, ParseInt);
    case AttrKind::kFloats:
      return ParseEach<double>(context, text, ParseDouble);
    case AttrKind::kStrs:
      return ParseStrings(context, text);
    case AttrKind::kType: {
      const auto element = ParseElementType(text);
      return element ? TypeAttribute::Get(ElemType::Get(context, *element)) : Attribute();
    }
    case AttrKind::kTensor:
      if (const auto value = ParseDouble(text)) return FloatAttribute::Get(context, *value);
      return ParseText(context, text).dyn_cast<TensorAttribute>();
    default:
      return ParseText(context, text);
  }
}

Attribute ParseDeclared(const SymbolNode& node, const AttrDef& def, const std::string& text) {
  const Attribute value = ParseAs(*node.context, def.kind, text);
  const std::string what = StrCat("attribute '", def.name, "' of ", Describe(node));
  if (!value) {
    throw Error(ErrorCode::kInvalidArgument, "symbol/attribute-value",
                StrCat(what, " takes ", Words(def.kind), ", not '", text, "'"));
  }
  const std::vector<std::string_view> allowed(def.one_of.begin(), def.one_of.end());
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    Error error(ErrorCode::kInvalidArgument, "symbol/attribute-value",
                StrCat(what, " cannot be '", text, "'"));
    std::string list;
    for (const std::string_view word : allowed) list += StrCat(list.empty() ? "" : ", ", word);
    throw error.Hint(StrCat("it is one of ", list));
  }
  return value;
}

/// Front-end keys of an op: `num_results` where results may vary, `use_<operand>`.
std::vector<std::string> FrontEndKeys(const SymbolNode& node) {
  std::vector<std::string> keys;
  if (node.is_variable()) return keys;
  for (const ValueDef& v : node.op.def()->operands) {
    if (v.optional) keys.push_back(StrCat(kUsePrefix, v.name));
  }
  for (const ValueDef& r : node.op.def()->results) {
    if (r.optional || r.variadic) return keys.emplace_back(kNumResults), keys;
  }
  return keys;
}

void CheckFrontEnd(const SymbolNode& node, const std::string& key, const std::string& text) {
  if (key != kNumResults) {
    if (text == "true" || text == "false") return;
    throw Error(ErrorCode::kInvalidArgument, "symbol/attribute-value",
                StrCat("'", key, "' of ", Describe(node), " is true or false, not '", text, "'"));
  }
  const auto count = ParseInt(text);
  const std::span<const ValueDef> results = node.op.def()->results;
  const size_t most = results.back().variadic ? 1'000'000 : results.size();
  if (!count || *count < 1 || static_cast<uint64_t>(*count) > most) {
    throw Error(ErrorCode::kInvalidArgument, "symbol/attribute-value",
                StrCat("'", key, "' of ", Describe(node), " is at least 1 and at most ", most,
                       ", not '", text, "'"));
  }
}

/// Keys that the user meant for the op but misspelt.
void CheckSpelling(const SymbolNode& node, const std::string& key) {
  if (node.is_variable() || key.starts_with("__")) return;
  std::vector<std::string> known = FrontEndKeys(node);
  for (const AttrDef& def : node.op.def()->attributes) known.emplace_back(def.name);
  const std::string near = DidYouMean(key, known);
  if (near.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "symbol/unknown-attribute",
              StrCat(Describe(node), " has no attribute '", key, "'"))
      .Hint(near)
      .Hint(
          StrCat("a runtime attribute that looks like one of the op's is written '__", key, "__'"));
}

}  // namespace

KeyKind KindOf(const SymbolNode& node, std::string_view key) {
  if (Declared(node, key) != nullptr) return KeyKind::kDeclared;
  const std::vector<std::string> keys = FrontEndKeys(node);
  const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
  return known ? KeyKind::kFrontEnd : KeyKind::kRuntime;
}

void CheckAttr(const SymbolNode& node, const std::string& key, const std::string& text) {
  switch (KindOf(node, key)) {
    case KeyKind::kDeclared:
      ParseDeclared(node, *Declared(node, key), text);
      return;
    case KeyKind::kFrontEnd:
      CheckFrontEnd(node, key, text);
      return;
    case KeyKind::kRuntime:
      CheckSpelling(node, key);
      return;
  }
}

std::vector<NamedAttribute> TypedAttrs(const SymbolNode& node) {
  std::vector<NamedAttribute> typed;
  for (const auto& [key, text] : node.attrs) {
    Attribute value;
    if (const AttrDef* def = Declared(node, key)) {
      value = ParseDeclared(node, *def, text);
    } else if (KindOf(node, key) == KeyKind::kRuntime) {
      value = StrAttribute::Get(*node.context, text);
    }
    if (value) typed.push_back({StrAttribute::Get(*node.context, key), value});
  }
  return typed;
}

std::map<std::string, std::string> RuntimeAttrs(const SymbolNode& node) {
  std::map<std::string, std::string> attrs;
  for (const auto& [key, text] : node.attrs) {
    if (KindOf(node, key) == KeyKind::kRuntime) attrs.emplace(key, text);
  }
  return attrs;
}

}  // namespace symbol

SymbolNode& Symbol::OnlyNode(const char* what) const {
  bool one = !outputs_.empty();
  for (const SymbolEntry& e : outputs_) one &= e.node == outputs_.front().node;
  if (!one) {
    throw Error(ErrorCode::kInvalidArgument, "symbol/group",
                StrCat(what, " needs a symbol of one op or variable, not a group"))
        .Hint("pick one with operator[]");
  }
  return *outputs_.front().node;
}

IrContext& Symbol::context() const { return *outputs_.front().node->context; }

void Symbol::SetAttrs(const SymbolAttrs& attrs) {
  SymbolNode& node = OnlyNode("SetAttrs");
  for (const auto& [key, text] : attrs) {
    if (key == "name") continue;
    symbol::CheckAttr(node, key, text);
    if (node.composed && symbol::KindOf(node, key) == symbol::KeyKind::kFrontEnd) {
      throw Error(ErrorCode::kInvalidArgument, "symbol/late-attribute",
                  StrCat(symbol::Describe(node), " has its arguments; '", key, "' comes too late"))
          .Hint("give it to CreateFunctor");
    }
  }
  for (const auto& [key, text] : attrs) (key == "name" ? node.name : node.attrs[key]) = text;
}

bool Symbol::GetAttr(std::string_view key, std::string* out) const {
  const SymbolNode& node = OnlyNode("GetAttr");
  if (key == "name") {
    *out = node.name;
  } else if (key == "op_name") {
    *out = node.is_variable() ? "null" : std::string(node.op.name());
  } else if (key == "_value_index") {
    *out = StrCat(outputs_.front().index);
  } else if (const auto at = node.attrs.find(std::string(key)); at != node.attrs.end()) {
    *out = at->second;
  } else {
    return false;
  }
  return true;
}

std::map<std::string, std::string> Symbol::ListAttrs(ListAttrOption option) const {
  if (option == kShallow) return OnlyNode("ListAttrs").attrs;
  std::map<std::string, std::string> attrs;
  for (const auto& [node, key, text] : ListAttrsRecursive()) {
    attrs.emplace(StrCat(node, "$", key), text);
  }
  return attrs;
}

std::vector<std::tuple<std::string, std::string, std::string>> Symbol::ListAttrsRecursive() const {
  std::vector<std::tuple<std::string, std::string, std::string>> attrs;
  for (const SymbolNode* node : symbol::PostOrder(outputs_)) {
    for (const auto& [key, text] : node->attrs) attrs.emplace_back(node->name, key, text);
  }
  return attrs;
}

}  // namespace lathe
