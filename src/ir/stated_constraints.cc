#include "lathe/ir/stated_constraints.h"

#include <algorithm>
#include <array>

#include "lathe/ir/attribute.h"
#include "lathe/ir/context.h"
#include "lathe/ir/operation.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/walk.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

using Kind = SizeCondition::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 4> kKinds = {{
    {"equal", Kind::kEqual},
    {"at-least", Kind::kAtLeast},
    {"broadcast", Kind::kBroadcast},
    {"broadcast-to", Kind::kBroadcastTo},
}};

std::string_view NameOf(Kind kind) {
  return std::ranges::find(kKinds, kind, &decltype(kKinds)::value_type::second)->first;
}

// What holds the statement of a block; null if it has no place for one.
Operation* HolderOf(const Block& block) {
  Operation* parent = block.parent_op();
  const bool is_top = parent != nullptr && parent->block() == nullptr;
  return is_top ? parent : block.terminator();
}

Attribute StatementOf(const Block& block) {
  const Operation* holder = HolderOf(block);
  return holder == nullptr ? Attribute() : holder->attribute(kReliesOnAttr);
}

// ---- as an attribute ----

class Entries {
 public:
  explicit Entries(IrContext& context) : context_(context) {}
  void Add(std::string_view name, Attribute value) {
    entries_.push_back({StrAttribute::Get(context_, name), value});
  }
  void AddText(std::string_view name, std::string_view text) {
    if (!text.empty()) Add(name, StrAttribute::Get(context_, text));
  }
  Attribute Done() { return DictionaryAttribute::Get(context_, entries_); }

 private:
  IrContext& context_;
  std::vector<NamedAttribute> entries_;
};

Attribute NotesOf(IrContext& context, const Error& error) {
  std::vector<std::string> notes;
  for (const Note& note : error.notes()) notes.push_back(note.text);
  return ArrayAttribute::Get(context, std::span<const std::string>(notes));
}

Attribute AttributeOf(IrContext& context, const SizeConstraint& c) {
  const Error& error = c.error;
  Entries entries(context);
  entries.AddText("kind", NameOf(c.condition.kind));
  entries.Add("a", DimAttribute::Get(context, c.condition.a));
  entries.Add("b", DimAttribute::Get(context, c.condition.b));
  entries.AddText("id", error.id());
  entries.AddText("message", error.message());
  entries.AddText("where", error.where());
  if (!error.notes().empty()) entries.Add("notes", NotesOf(context, error));
  if (!error.hints().empty()) entries.AddText("hint", error.hints().front());
  return entries.Done();
}

// ---- back ----

[[noreturn]] void Malformed(Attribute attribute) {
  throw Error(ErrorCode::kVerify, "verify/relies-on",
              StrCat("`", kReliesOnAttr, "` states no condition: ", attribute.ToString()))
      .Hint(
          "a list of {kind = \"equal\", a = dim<N>, b = dim<M>, id = \"shape/...\", message = "
          "\"...\"}; other kinds are at-least, broadcast and broadcast-to");
}

class Reader {
 public:
  explicit Reader(Attribute attribute) : entry_(attribute.dyn_cast<DictionaryAttribute>()) {
    if (!entry_) Malformed(attribute);
  }

  SizeConstraint Read() const {
    const SizeCondition condition{KindOf(Text("kind")), DimOf("a"), DimOf("b")};
    Error error(ErrorCode::kShape, Text("id"), Text("message"));
    if (entry_.Find("where")) error.At(Text("where"));
    if (entry_.Find("hint")) error.Hint(Text("hint"));
    for (std::string& note : Notes()) error.Note(std::move(note));
    return {condition, std::move(error)};
  }

 private:
  std::string Text(std::string_view name) const {
    const auto text = entry_.Find(name).dyn_cast<StrAttribute>();
    if (!text) Malformed(entry_);
    return std::string(text.value());
  }

  Dim DimOf(std::string_view name) const {
    const auto dim = entry_.Find(name).dyn_cast<DimAttribute>();
    if (!dim || dim.value().is_unknown()) Malformed(entry_);
    return dim.value();
  }

  Kind KindOf(std::string_view name) const {
    const auto found = std::ranges::find(kKinds, name, &decltype(kKinds)::value_type::first);
    if (found == kKinds.end()) Malformed(entry_);
    return found->second;
  }

  std::vector<std::string> Notes() const {
    const Attribute notes = entry_.Find("notes");
    if (!notes) return {};
    const auto list = notes.dyn_cast<ArrayAttribute>();
    auto texts = list ? list.AsStrings() : std::nullopt;
    if (!texts) Malformed(entry_);
    return *std::move(texts);
  }

  DictionaryAttribute entry_;
};

}  // namespace

std::vector<SizeConstraint> StatedConstraints(const Block& block) {
  const Attribute stated = StatementOf(block);
  if (!stated) return {};
  const auto list = stated.dyn_cast<ArrayAttribute>();
  if (!list) Malformed(stated);
  std::vector<SizeConstraint> constraints;
  for (const Attribute entry : list.values()) {
    SizeConstraint constraint = Reader(entry).Read();
    if (constraint.condition.Decide() != true) constraints.push_back(std::move(constraint));
  }
  return constraints;
}

void StateConstraints(Block& block, std::span<const SizeConstraint> constraints) {
  Operation* holder = HolderOf(block);
  if (holder == nullptr) return;
  IrContext& context = *holder->context();
  std::vector<Attribute> entries;
  for (const SizeConstraint& c : constraints) entries.push_back(AttributeOf(context, c));
  const Attribute list = entries.empty()
                             ? Attribute()
                             : ArrayAttribute::Get(context, std::span<const Attribute>(entries));
  holder->SetAttribute(kReliesOnAttr, list);
}

void ReplaceSizes(std::vector<SizeConstraint>& constraints, const Dim::Replacement& of) {
  std::erase_if(constraints, [&](SizeConstraint& c) {
    c.condition.a = c.condition.a.Substitute(of);
    c.condition.b = c.condition.b.Substitute(of);
    return c.condition.a.is_unknown() || c.condition.b.is_unknown() || c.condition.Decide() == true;
  });
}

void ReplaceStatedSizes(Operation* within, const Dim::Replacement& of) {
  for (OpWalker w(within); Operation* op = w.Next();) {
    for (Region& region : op->regions()) {
      for (Block& block : region) {
        if (!StatementOf(block)) continue;
        std::vector<SizeConstraint> constraints = StatedConstraints(block);
        ReplaceSizes(constraints, of);
        StateConstraints(block, constraints);
      }
    }
  }
}

std::string StatementText(const Block& block) {
  const Attribute stated = StatementOf(block);
  return stated ? stated.ToString() : std::string();
}

void StateText(Block& block, std::string_view text) {
  Operation* holder = HolderOf(block);
  if (holder == nullptr) return;
  holder->SetAttribute(kReliesOnAttr, ParseAttribute(*holder->context(), text));
  (void)StatedConstraints(block);
}

}  // namespace lathe
