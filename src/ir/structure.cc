#include "lathe/ir/structure.h"

#include <algorithm>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/support/hash.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

class StructureWriter {
 public:
  std::string Write(const Region& region) {
    top_ = &region;
    Open(region);
    while (!open_.empty()) Step();
    return std::move(text_);
  }

 private:
  struct Frame {
    const Region* region;
    const Block* block;
    Operation* next;
    Operation* entered;  // its regions are being written
    size_t inner;
  };

  void Open(const Region& region) {
    text_ += "{";
    const Block* block = region.front();
    open_.push_back({&region, block, nullptr, nullptr, 0});
    if (block != nullptr) Begin(block);
  }

  void Begin(const Block* block) {
    open_.back().block = block;
    open_.back().next = block->front();
    text_ += "^(";
    for (size_t i = 0; i < block->num_arguments(); ++i) Define(block->argument(i));
    text_ += ")";
  }

  void Step() {
    Frame& f = open_.back();
    if (f.entered != nullptr && f.inner < f.entered->num_regions()) {
      Open(f.entered->region(f.inner++));
    } else if (f.next != nullptr) {
      f.entered = f.next;
      f.inner = 0;
      f.next = f.next->next();
      WriteOp(*f.entered);
    } else if (f.block != nullptr && f.block->next() != nullptr) {
      f.entered = nullptr;
      Begin(f.block->next());
    } else {
      text_ += "}";
      open_.pop_back();
    }
  }

  void WriteOp(const Operation& op) {
    const bool ends = op.HasTrait<Terminator>() && open_.back().region == top_;
    text_ += ends ? "yield" : op.name();
    text_ += "(";
    for (size_t i = 0; i < op.num_operands(); ++i) {
      const Value v = op.operand(i);
      text_ += v ? StrCat(Number(v), ",") : "none,";
    }
    text_ += ")";
    WriteAttributes(op);
    for (size_t i = 0; i < op.num_results(); ++i) Define(op.result(i));
    text_ += "\n";
  }

  void WriteAttributes(const Operation& op) {
    const std::span<const StrAttribute> declared = op.info().impl()->attribute_names();
    for (const NamedAttribute& a : op.attributes().entries()) {
      const bool runtime = op.info().def() != nullptr &&
                           std::find(declared.begin(), declared.end(), a.name) == declared.end();
      if (!runtime) text_ += StrCat(Quote(a.name.value()), "=", TextOf(a.value), ";");
    }
  }

  void Define(Value v) {
    numbers_.emplace(v, StrCat("%", numbers_.size()));
    text_ += StrCat(":", TextOf(v.type()));
  }

  const std::string& Number(Value v) {
    const auto [at, from_outside] = numbers_.emplace(v, "");
    if (from_outside) at->second = StrCat("outer", outer_++, ":", TextOf(v.type()));
    return at->second;
  }

  /// Types and attributes repeat: each is written once.
  template <class T>
  const std::string& TextOf(T handle) {
    const auto [at, added] = texts_.emplace(handle.storage(), "");
    if (added) at->second = handle.ToString();
    return at->second;
  }

  const Region* top_ = nullptr;
  std::string text_;
  std::vector<Frame> open_;
  size_t outer_ = 0;
  // Looked up, never iterated.
  std::unordered_map<Value, std::string> numbers_;
  std::unordered_map<const void*, std::string> texts_;
};

}  // namespace

std::string StructureText(const Region& region) { return StructureWriter().Write(region); }

uint64_t StructureHash(const Region& region) { return HashString(StructureText(region)); }

}  // namespace lathe
