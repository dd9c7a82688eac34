#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/ir/program.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

/// Compares two operation trees without recursion; values correspond by position. Types,
/// attributes and locations compare by handle in one context, else by text.
class Comparer {
 public:
  Comparer(bool same_context, bool locations)
      : same_context_(same_context), locations_(locations) {}

  bool Run(const Operation* a, const Operation* b) {
    todo_.push_back({a, b});
    while (!todo_.empty()) {
      const auto [x, y] = todo_.back();
      todo_.pop_back();
      if (!SameOp(x, y)) return false;
      if (!SameRegions(x, y)) return false;
    }
    return true;
  }
  std::string why;

 private:
  bool Differ(const Operation* op, std::string_view what) {
    why = StrCat(what, " of ", op->Describe(), " differ");
    return false;
  }

  template <class H>
  bool Same(H a, H b) const {
    if (same_context_ || !a || !b) return a == b;
    return a.ToString() == b.ToString();
  }

  bool SameOp(const Operation* a, const Operation* b) {
    if (a->name() != b->name()) return Differ(a, StrCat("the name (", b->name(), ")"));
    if (a->num_operands() != b->num_operands() || a->num_results() != b->num_results() ||
        a->num_regions() != b->num_regions()) {
      return Differ(a, "the numbers of operands, results or regions");
    }
    if (!Same<Attribute>(a->attributes(), b->attributes())) return Differ(a, "the attributes");
    if (locations_ && !SameLocation(a, b)) return Differ(a, "the locations");
    for (size_t i = 0; i < a->num_results(); ++i) {
      if (!Same(a->result(i).type(), b->result(i).type())) return Differ(a, "the result types");
      map_.emplace(a->result(i), b->result(i));
    }
    operations_.emplace_back(a, b);
    return true;
  }

  bool SameLocation(const Operation* a, const Operation* b) const {
    if (same_context_) return a->location() == b->location();
    return a->location().ToString(*a->context()) == b->location().ToString(*b->context());
  }

  bool SameRegions(const Operation* a, const Operation* b) {
    const size_t first = todo_.size();
    for (size_t r = 0; r < a->num_regions(); ++r) {
      const Block* x = a->region(r).front();
      const Block* y = b->region(r).front();
      for (; x != nullptr && y != nullptr; x = x->next(), y = y->next()) {
        if (!SameBlock(a, *x, *y)) return false;
      }
      if (x != nullptr || y != nullptr) return Differ(a, "the numbers of blocks");
    }
    std::reverse(todo_.begin() + static_cast<std::ptrdiff_t>(first), todo_.end());
    return true;
  }

  bool SameBlock(const Operation* parent, const Block& x, const Block& y) {
    if (x.num_arguments() != y.num_arguments()) return Differ(parent, "the block arguments");
    for (size_t i = 0; i < x.num_arguments(); ++i) {
      if (!Same(x.argument(i).type(), y.argument(i).type())) {
        return Differ(parent, "the types of block arguments");
      }
      map_.emplace(x.argument(i), y.argument(i));
    }
    auto p = x.begin();
    auto q = y.begin();
    for (; p != x.end() && q != y.end(); ++p, ++q) todo_.push_back({&*p, &*q});
    return p == x.end() && q == y.end() ? true : Differ(parent, "the numbers of operations");
  }

 public:
  /// Last, when every value has its counterpart.
  bool SameOperands() {
    for (const auto& [a, b] : operations_) {
      for (size_t i = 0; i < a->num_operands(); ++i) {
        const Value x = a->operand(i);
        auto at = map_.find(x);
        const Value expected = at == map_.end() ? x : at->second;
        if (b->operand(i) != expected) return Differ(a, "the operands");
      }
    }
    return true;
  }

 private:
  bool same_context_;
  bool locations_;
  std::vector<std::pair<const Operation*, const Operation*>> todo_;
  std::vector<std::pair<const Operation*, const Operation*>> operations_;
  std::unordered_map<Value, Value> map_;
};

}  // namespace

bool StructurallyEqual(const Operation* a, const Operation* b, bool compare_locations,
                       std::string* why) {
  Comparer comparer(a->context() == b->context(), compare_locations);
  const bool equal = comparer.Run(a, b) && comparer.SameOperands();
  if (!equal && why != nullptr) *why = comparer.why;
  return equal;
}

}  // namespace lathe
