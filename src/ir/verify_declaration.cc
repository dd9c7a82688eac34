#include <algorithm>

#include "lathe/ir/context.h"
#include "src/ir/verifier.h"

namespace lathe {

namespace {

// ---- names of things, for messages ----

std::string Named(const char* kind, size_t i, const ValueDef* def) {
  if (def == nullptr) return StrCat(kind, " ", i);
  return StrCat(kind, " ", i, " ('", def->name, "')");
}

std::string Describe(const TypeRule& rule, const OpDef& def) {
  switch (rule.kind) {
    case TypeRule::Kind::kAny:
      return "any type";
    case TypeRule::Kind::kTensor:
      return "a tensor";
    case TypeRule::Kind::kVariable: {
      const TypeSetDef& set = def.type_sets[rule.index];
      std::string out = StrCat("a tensor of type ", set.name, ": ");
      for (size_t i = 0; i < set.elements.size(); ++i) {
        if (i > 0) out += i + 1 == set.elements.size() ? " or " : ", ";
        out += Name(set.elements[i]);
      }
      return out;
    }
    case TypeRule::Kind::kElement:
      return StrCat("a tensor of ", Name(rule.element));
    case TypeRule::Kind::kFromAttr:
      return StrCat("a tensor of the type that attribute '", def.attributes[rule.index].name,
                    "' names");
    case TypeRule::Kind::kList:
      return StrCat("a list of: ", Describe(*rule.inner, def));
    case TypeRule::Kind::kOptional:
      return StrCat("an optional of: ", Describe(*rule.inner, def));
    case TypeRule::Kind::kToken:
      return "a token";
  }
  return "another type";
}

// ---- types ----

/// Checks the operands, then the results, of one op; binds type variables on the way.
class TypeChecker {
 public:
  explicit TypeChecker(const Operation* op) : op_(op), def_(*op->info().def()) {
    bound_.resize(def_.type_sets.size());
  }

  void CheckValue(const char* kind, size_t i, const ValueDef& value, Type type) {
    if (!Matches(value.type, value, type)) {
      throw OpError(op_, "verify/type",
                    StrCat(Named(kind, i, &value), " must be ", Describe(value.type, def_),
                           "; it is ", type.ToString()));
    }
    if (conflict_ == nullptr) return;
    Error error =
        OpError(op_, "verify/type-variable",
                StrCat(Named(kind, i, &value), " is ", type.ToString(), ", but ", conflict_->what,
                       " makes ", def_.type_sets[variable_].name, " ", Name(conflict_->element)));
    throw error.Hint(StrCat("all values of type ", def_.type_sets[variable_].name,
                            " have one element type; cast one of them"));
  }
  void Bind(const char* kind, size_t i, const ValueDef& value) {
    if (fresh_ != nullptr) fresh_->what = Named(kind, i, &value);
    fresh_ = nullptr;
  }

 private:
  struct Binding {
    ElementType element = ElementType::kUndefined;
    std::string what;
  };

  bool Matches(const TypeRule& rule, const ValueDef& value, Type type) {
    switch (rule.kind) {
      case TypeRule::Kind::kAny:
        return true;
      case TypeRule::Kind::kToken:
        return type.isa<TokenType>();
      case TypeRule::Kind::kList:
        return type.isa<ListType>() && MatchesInner(rule, value, type);
      case TypeRule::Kind::kOptional:
        return type.isa<OptionalType>() && MatchesInner(rule, value, type);
      default:
        return type.isa<AnyTensorType>() &&
               MatchesElement(rule, value, type.cast<AnyTensorType>().element());
    }
  }

  bool MatchesInner(const TypeRule& rule, const ValueDef& value, Type type) {
    return rule.inner == nullptr ||
           Matches(*rule.inner, value, type.cast<ContainerType>().elements()[0]);
  }

  bool MatchesElement(const TypeRule& rule, const ValueDef& value, ElementType element) {
    if (element == ElementType::kUndefined) return true;
    if (rule.kind == TypeRule::Kind::kElement) return element == rule.element;
    if (rule.kind == TypeRule::Kind::kFromAttr) return element == FromAttribute(rule, element);
    if (rule.kind != TypeRule::Kind::kVariable) return true;
    const std::span<const ElementType> allowed = def_.type_sets[rule.index].elements;
    if (std::find(allowed.begin(), allowed.end(), element) == allowed.end()) return false;
    if (value.heterogeneous) return true;
    Binding& binding = bound_[rule.index];
    if (binding.element == ElementType::kUndefined) {
      binding.element = element;
      fresh_ = &binding;
    } else if (binding.element != element) {
      conflict_ = &binding;
      variable_ = rule.index;
    }
    return true;
  }

  ElementType FromAttribute(const TypeRule& rule, ElementType otherwise) const {
    const auto value = op_->attribute(def_.attributes[rule.index].name).dyn_cast<TypeAttribute>();
    const ElemType type = value ? value.value().dyn_cast<ElemType>() : ElemType();
    return type ? type.element() : otherwise;
  }

  const Operation* op_;
  const OpDef& def_;
  std::vector<Binding> bound_;
  Binding* fresh_ = nullptr;           // bound by the value looked at last
  const Binding* conflict_ = nullptr;  // contradicted by it
  uint16_t variable_ = 0;
};

const ValueDef& Declared(std::span<const ValueDef> defs, size_t i) {
  return defs[std::min(i, defs.size() - 1)];
}

// `count` against the declared values: trailing optional ones may be left out.
void CheckCount(const Operation* op, const char* kind, std::span<const ValueDef> defs,
                size_t count) {
  size_t least = 0;
  for (size_t i = 0; i < defs.size(); ++i) {
    if (defs[i].variadic) {
      if (defs[i].min_count > 0) least = i + defs[i].min_count;
    } else if (!defs[i].optional) {
      least = i + 1;
    }
  }
  const bool variadic = !defs.empty() && defs.back().variadic;
  if (count >= least && (variadic || count <= defs.size())) return;
  const std::string wanted = variadic               ? StrCat("at least ", least)
                             : least == defs.size() ? StrCat(least)
                                                    : StrCat(least, " to ", defs.size());
  std::string names;
  for (const ValueDef& d : defs) {
    names +=
        StrCat(names.empty() ? "" : ", ", d.name, d.optional ? "?" : "", d.variadic ? "..." : "");
  }
  throw OpError(op, StrCat("verify/", kind, "s"),
                StrCat("has ", count, " ", kind, "s; expected ", wanted))
      .Hint(StrCat(kind, "s: ", names.empty() ? "none" : names));
}

bool IsAbsent(Type type) { return !type || type.isa<NoneType>(); }

void CheckValues(const Operation* op, const OpDef& def) {
  CheckCount(op, "operand", def.operands, op->num_operands());
  CheckCount(op, "result", def.results, op->num_results());
  TypeChecker checker(op);
  auto check = [&](const char* kind, size_t i, std::span<const ValueDef> defs, Type type) {
    const ValueDef& value = Declared(defs, i);
    if (IsAbsent(type)) {
      if (value.optional || (value.type.kind == TypeRule::Kind::kAny && type)) return;
      throw OpError(op, StrCat("verify/", kind, "s"),
                    StrCat(Named(kind, i, &value), " is absent, but is not optional"));
    }
    checker.CheckValue(kind, i, value, type);
    checker.Bind(kind, i, value);
  };
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    check("operand", i, def.operands, v ? v.type() : Type());
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    check("result", i, def.results, op->result(i).type());
  }
}

// ---- attributes ----

const char* Describe(AttrKind kind) {
  switch (kind) {
    case AttrKind::kBool:
      return "true or false";
    case AttrKind::kInt:
      return "an integer";
    case AttrKind::kFloat:
      return "a float";
    case AttrKind::kStr:
      return "a string";
    case AttrKind::kInts:
      return "a list of integers";
    case AttrKind::kFloats:
      return "a list of floats";
    case AttrKind::kStrs:
      return "a list of strings";
    case AttrKind::kType:
      return "an element type such as f32";
    case AttrKind::kTensor:
      return "a dense tensor";
    case AttrKind::kArray:
      return "a list";
    case AttrKind::kDict:
      return "a dictionary";
    case AttrKind::kAny:
      return "an attribute";
  }
  return "another attribute";
}

bool IsOfKind(Attribute value, AttrKind kind) {
  const auto array = value.dyn_cast<ArrayAttribute>();
  switch (kind) {
    case AttrKind::kBool:
      return value.isa<BoolAttribute>();
    case AttrKind::kInt:
      return value.isa<IntAttribute>();
    case AttrKind::kFloat:
      return value.isa<FloatAttribute>() || value.isa<IntAttribute>();
    case AttrKind::kStr:
      return value.isa<StrAttribute>();
    case AttrKind::kInts:
      return array && array.AsInts();
    case AttrKind::kFloats:
      return array && array.AsFloats();
    case AttrKind::kStrs:
      return array && array.AsStrings();
    case AttrKind::kType:
      return value.isa<TypeAttribute>() && value.cast<TypeAttribute>().value().isa<ElemType>();
    case AttrKind::kTensor:
      return value.isa<TensorAttribute>();
    case AttrKind::kArray:
      return static_cast<bool>(array);
    case AttrKind::kDict:
      return value.isa<DictionaryAttribute>();
    case AttrKind::kAny:
      return true;
  }
  return false;
}

// Each integer (string) of an attribute that is one or a list of them.
template <class Fn>
void ForEachElement(Attribute value, Fn&& fn) {
  if (const auto array = value.dyn_cast<ArrayAttribute>()) {
    for (const Attribute element : array.values()) fn(element);
  } else {
    fn(value);
  }
}

void CheckOneOf(const Operation* op, const AttrDef& def, Attribute value) {
  const std::vector<std::string_view> allowed(def.one_of.begin(), def.one_of.end());
  ForEachElement(value, [&](Attribute element) {
    const auto text = element.dyn_cast<StrAttribute>();
    if (!text || std::find(allowed.begin(), allowed.end(), text.value()) != allowed.end()) return;
    std::string list;
    for (const std::string_view a : allowed) list += StrCat(list.empty() ? "" : ", ", Quote(a));
    Error error = OpError(
        op, "verify/attribute",
        StrCat("attribute '", def.name, "' is ", Quote(text.value()), "; expected one of ", list));
    const std::string near = DidYouMean(text.value(), allowed);
    if (!near.empty()) error.Hint(near);
    throw error;
  });
}

void CheckMinimum(const Operation* op, const AttrDef& def, Attribute value) {
  ForEachElement(value, [&](Attribute element) {
    const auto number = element.dyn_cast<IntAttribute>();
    if (!number || number.value() >= def.min) return;
    throw OpError(op, "verify/attribute",
                  StrCat("attribute '", def.name, "' is ", value.ToString(),
                         "; it must be at least ", def.min));
  });
}

// `transposeX` and `transpose_x` alike.
std::string Squeezed(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_') out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return out;
}

// Whether two letters in a row, or fewer, make the difference.
bool IsAlmost(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) a.remove_prefix(1), b.remove_prefix(1);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a.remove_suffix(1), b.remove_suffix(1);
  return std::max(a.size(), b.size()) <= 2;
}

// The declared attribute that `name` may be a misspelling of, or null.
const char* DeclaredLike(std::string_view name, const OpDef& def) {
  for (const AttrDef& attribute : def.attributes) {
    const bool is_short = std::string_view(attribute.name).size() <= 3;
    if (Squeezed(name) == Squeezed(attribute.name)) return attribute.name;
    if (!is_short && IsAlmost(name, attribute.name)) return attribute.name;
  }
  return nullptr;
}

// An undeclared attribute is a runtime attribute, but not one that looks like a declared one; with
// a prefix, as in `trace.axis`, it may.
void CheckSpelling(const Operation* op, const OpDef& def) {
  const auto is_declared = [&](std::string_view name) {
    return std::ranges::any_of(def.attributes, [&](const AttrDef& a) { return a.name == name; });
  };
  for (const NamedAttribute& entry : op->attributes().entries()) {
    const std::string_view name = entry.name.value();
    if (is_declared(name) || name.find('.') != std::string_view::npos) continue;
    const char* near = DeclaredLike(name, def);
    if (near == nullptr) continue;
    throw OpError(op, "verify/attribute", StrCat("attribute '", name, "' is not declared"))
        .Hint(StrCat("did you mean '", near, "'?"))
        .Hint("an attribute of your own that looks like one of the op's takes a prefix: 'my.axis'");
  }
}

void CheckAttributes(const Operation* op, const OpDef& def) {
  if (op->attributes().size() > 0) CheckSpelling(op, def);
  const std::span<const StrAttribute> names = op->info().impl()->attribute_names();
  for (size_t i = 0; i < def.attributes.size(); ++i) {
    const AttrDef& attribute = def.attributes[i];
    const Attribute value = op->attributes().Find(names[i]);
    if (!value) {
      if (attribute.optional) continue;
      throw OpError(
          op, "verify/attribute",
          StrCat("attribute '", attribute.name, "' is missing: ", Describe(attribute.kind)));
    }
    if (!IsOfKind(value, attribute.kind)) {
      throw OpError(op, "verify/attribute",
                    StrCat("attribute '", attribute.name, "' must be ", Describe(attribute.kind),
                           "; it is ", value.ToString()));
    }
    if (!attribute.one_of.empty()) CheckOneOf(op, attribute, value);
    if (attribute.has_min) CheckMinimum(op, attribute, value);
  }
}

}  // namespace

void VerifyDeclaration(Operation* op) {
  const OpDef* def = op->info().def();
  if (def == nullptr) return;
  CheckAttributes(op, *def);
  CheckValues(op, *def);
  if (op->num_regions() != def->regions.size()) {
    throw OpError(op, "verify/regions",
                  StrCat("has ", op->num_regions(), " regions; expected ", def->regions.size()));
  }
}

}  // namespace lathe
