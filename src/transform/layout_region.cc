#include "src/transform/layout_region.h"

#include <algorithm>
#include <numeric>

#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "src/transform/canonicalize.h"

namespace lathe {

namespace {

/// One transpose more or less outweighs every size.
constexpr int64_t kTranspose = int64_t{1} << 32;
constexpr int64_t kMostElements = int64_t{1} << 28;
/// Of an extent that is not known.
constexpr int64_t kSomeExtent = 64;

int64_t CostOf(Value value) {
  int64_t elements = 1;
  if (const AnyTensorType type = TensorOrNull(value)) {
    for (const Dim& d : type.dims()) {
      const int64_t extent = d.is_constant() ? d.value() : kSomeExtent;
      elements = std::min(kMostElements, elements * std::clamp<int64_t>(extent, 1, kMostElements));
    }
  }
  return kTranspose + elements;
}

size_t RankOfTensor(Value value) {
  const AnyTensorType type = TensorOrNull(value);
  return type && type.has_rank() ? type.rank() : SIZE_MAX;
}

SymShape PermutedShape(const AnyTensorType& type, const Permutation& perm) {
  std::vector<Dim> dims;
  for (const int64_t axis : perm) dims.push_back(type.dims()[static_cast<size_t>(axis)]);
  return dims;
}

std::string NameOf(Value value) {
  const Operation* op = value.defining_op();
  if (op == nullptr) return "argument";
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  if (name) return std::string(name.value());
  return op->location().is_name() ? std::string(op->location().name()) : std::string(op->name());
}

}  // namespace

Permutation TransposePerm(const Operation* op) {
  if (!IsA(op, nn::kTranspose) || op->operand(0).type().isa<TensorType>()) return {};
  if (const auto list = op->attribute("perm").dyn_cast<ArrayAttribute>()) return *list.AsInts();
  const size_t rank = RankOfTensor(op->operand(0));
  if (rank == SIZE_MAX) return {};
  Permutation reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return reversed;
}

// ---- growing ----

void LayoutRegion::AddTranspose(Operation* transpose) {
  Label(transpose->result(0), Inverse(TransposePerm(transpose)));
  Grow();
}

bool LayoutRegion::AddAnchor(Operation* op, const Permutation& perm) {
  if (Member* member = MemberOf(op)) {
    const auto& needs = member->plan.operands();
    const bool same = std::any_of(needs.begin(), needs.end(), [&](const auto& need) {
      return need.first == 0 && need.second == perm;
    });
    member->forced |= same;
    return same;
  }
  PermuteContext plan(op, 0, perm, facts_);
  if (!AskPermute(plan) || !Join(std::move(plan), true)) return false;
  Grow();
  return true;
}

LayoutRegion::Member* LayoutRegion::MemberOf(const Operation* op) {
  const auto at = member_of_.find(op);
  return at == member_of_.end() ? nullptr : &members_[at->second];
}

void LayoutRegion::Label(Value value, const Permutation& perm) {
  if (labels_.emplace(value, perm).second) values_.push_back(value);
}

bool LayoutRegion::MayLabel(const std::vector<std::pair<Value, Permutation>>& wanted) const {
  for (const auto& [value, perm] : wanted) {
    const auto at = labels_.find(value);
    if (at != labels_.end() && at->second != perm) return false;
    for (const auto& [other, other_perm] : wanted) {
      if (value == other && perm != other_perm) return false;
    }
  }
  return true;
}

bool LayoutRegion::Join(PermuteContext plan, bool forced) {
  Operation* op = plan.op();
  for (const auto& [name, value] : plan.attributes()) {
    if (keep_layouts_ && name == "layout") return false;
  }
  std::vector<std::pair<Value, Permutation>> wanted;
  for (const auto& [i, perm] : plan.operands()) {
    const Value value = op->operand(i);
    if (value.type().isa<TensorType>()) return false;
    if (facts_.Constant(value) == nullptr) wanted.emplace_back(value, perm);
  }
  for (const auto& [i, perm] : plan.results()) wanted.emplace_back(op->result(i), perm);
  if (!MayLabel(wanted)) return false;
  for (const auto& [value, perm] : wanted) Label(value, perm);
  member_of_.emplace(op, members_.size());
  members_.push_back({op, std::move(plan), forced});
  return true;
}

void LayoutRegion::Grow() {
  for (; next_ < values_.size(); ++next_) Visit(values_[next_]);
}

/// What makes the value and what reads it, if it commutes.
void LayoutRegion::Visit(Value value) {
  const Permutation perm = labels_.at(value);
  if (RankOfTensor(value) != perm.size()) return;
  Operation* maker = value.defining_op();
  if (maker != nullptr && maker->block() == block_ && MemberOf(maker) == nullptr &&
      !IsA(maker, nn::kTranspose)) {
    for (size_t i = 0; i < maker->num_operands(); ++i) {
      if (!maker->operand(i) || RankOfTensor(maker->operand(i)) != perm.size()) continue;
      PermuteContext plan(maker, i, perm, facts_);
      if (!AskPermute(plan)) continue;
      const bool gives =
          std::any_of(plan.results().begin(), plan.results().end(),
                      [&](const auto& r) { return r.first == value.index() && r.second == perm; });
      if (gives && Join(std::move(plan), false)) break;
    }
  }
  for (const OpOperand use : value.uses()) {
    Operation* reader = use.owner();
    if (reader->block() != block_ || MemberOf(reader) != nullptr || IsA(reader, nn::kTranspose)) {
      continue;
    }
    PermuteContext plan(reader, use.index(), perm, facts_);
    if (AskPermute(plan)) Join(std::move(plan), false);
  }
}

// ---- choosing ----

bool LayoutRegion::IsSource(Value value) const {
  const Permutation perm =
      value.defining_op() == nullptr ? Permutation() : TransposePerm(value.defining_op());
  return !perm.empty() && labels_.at(value) == Inverse(perm);
}

LayoutRegion::Readers LayoutRegion::ReadersOf(Value value) {
  Readers readers;
  for (const OpOperand use : value.uses()) {
    const Permutation perm = TransposePerm(use.owner());
    if (!perm.empty()) {
      // Another transpose, or one from which permuted data come: it stays, whatever it reads.
      const Value result = use.owner()->result(0);
      const bool source = labels_.count(result) != 0 && IsSource(result);
      if (perm == labels_.at(value) && !source) readers.transposes.push_back(use.owner());
      continue;
    }
    const auto at = member_of_.find(use.owner());
    bool permuted = false;
    if (at != member_of_.end()) {
      for (const auto& [i, p] : members_[at->second].plan.operands()) permuted |= i == use.index();
    }
    if (permuted) {
      readers.members.push_back(at->second);
    } else {
      readers.others = true;
    }
  }
  return readers;
}

/// A transpose is due once where the value is made one way and read another.
void LayoutRegion::AddValue(Value value, MinCut& cut) {
  const int64_t cost = CostOf(value);
  const Readers readers = ReadersOf(value);
  const bool source = IsSource(value);
  const Member* maker = source ? nullptr : MemberOf(value.defining_op());
  const size_t made = source ? MinCut::kSource : maker != nullptr ? maker->node : MinCut::kSink;
  if (source) sources_.push_back(value.defining_op());
  const bool read = readers.others || !readers.members.empty();
  if (source ? read : !readers.transposes.empty()) cost_now_ += cost;
  if (made != MinCut::kSource) {  // made as it is, read permuted
    const size_t wanted = cut.AddNode();
    cut.AddEdge(wanted, made, cost);
    if (!readers.transposes.empty()) cut.AddEdge(MinCut::kSource, wanted, MinCut::kNever);
    for (const size_t m : readers.members) {
      cut.AddEdge(members_[m].node, wanted, MinCut::kNever);
    }
  }
  if (made != MinCut::kSink) {  // made permuted, read as it was
    const size_t wanted = cut.AddNode();
    cut.AddEdge(made, wanted, cost);
    if (readers.others) cut.AddEdge(wanted, MinCut::kSink, MinCut::kNever);
    for (const size_t m : readers.members) {
      cut.AddEdge(wanted, members_[m].node, MinCut::kNever);
    }
  }
}

int64_t LayoutRegion::Solve() {
  MinCut cut;
  cost_now_ = 0;
  for (Member& m : members_) {
    m.node = cut.AddNode();
    if (m.forced) cut.AddEdge(MinCut::kSource, m.node, MinCut::kNever);
  }
  for (const Value value : values_) AddValue(value, cut);
  const int64_t cost = cut.Solve();
  for (Member& m : members_) m.chosen = cut.OnSourceSide(m.node);
  return cost_now_ - cost;
}

// ---- applying ----

Value LayoutRegion::PermutedConstant(const Tensor& constant, Operation* transpose) {
  const RtValue inputs[] = {constant};
  const Tensor result = EvalOp(transpose, inputs)[0].tensor();
  constexpr size_t kConstantBytes = 4096;
  const Value made = result.byte_size() <= kConstantBytes ? rewriter_.Constant(result)
                                                          : rewriter_.Parameter("permuted", result);
  rewriter_.EraseDead(transpose);
  return made;
}

/// After what makes the value.
Value LayoutRegion::NewTranspose(Value value, const Permutation& perm, bool permutes) {
  Operation* maker = value.defining_op();
  Operation* next = maker != nullptr ? maker->next() : block_->front();
  rewriter_.SetInsertionPoint(next);
  if (maker != nullptr) rewriter_.set_location(maker->location());
  if (!suffix_.empty() && permutes && facts_.Constant(value) == nullptr) {
    rewriter_.set_location(
        Location::Name(rewriter_.context(), StrCat(NameOf(value), "_", suffix_)));
  }
  if (RankOfTensor(value) < perm.size()) {
    std::vector<int64_t> axes(perm.size() - RankOfTensor(value));
    std::iota(axes.begin(), axes.end(), 0);
    const Value operands[] = {value,
                              rewriter_.Constant(Tensor::Of<int64_t>({std::ssize(axes)}, axes))};
    value = rewriter_.Create(nn::kUnsqueeze, operands)->result(0);
  }
  const NamedAttribute attribute =
      rewriter_.Named("perm", rewriter_.Attr(std::span<const int64_t>(perm)));
  return rewriter_.Create(nn::kTranspose, {&value, 1}, {&attribute, 1})->result(0);
}

Value LayoutRegion::Permuted(Value value, const Permutation& perm) {
  if (IsIdentity(perm) && RankOfTensor(value) == perm.size()) return value;
  if (const Tensor* constant = facts_.Constant(value)) {
    if (constant->num_elements() == 1 && constant->rank() == 0) return value;
    const Tensor data = *constant;
    const Value made = NewTranspose(value, perm, true);
    Operation* transpose = made.defining_op();
    const Tensor full = data.Reshaped([&] {
      Shape shape(perm.size() - data.shape().size(), 1);
      shape.insert(shape.end(), data.shape().begin(), data.shape().end());
      return shape;
    }());
    return PermutedConstant(full, transpose);
  }
  const auto at = permuted_.find(value);
  if (at != permuted_.end()) return at->second;
  const Permutation own =
      value.defining_op() == nullptr ? Permutation() : TransposePerm(value.defining_op());
  const bool source = !own.empty() && Inverse(own) == perm;
  const Value made = source ? value.defining_op()->operand(0) : NewTranspose(value, perm, true);
  permuted_.emplace(value, made);
  return made;
}

std::vector<Value> LayoutRegion::OperandsOf(const Member& member) {
  std::vector<Value> operands;
  for (size_t i = 0; i < member.op->num_operands(); ++i) operands.push_back(member.op->operand(i));
  for (const auto& [i, perm] : member.plan.operands()) operands[i] = Permuted(operands[i], perm);
  rewriter_.SetInsertionPoint(member.op);
  rewriter_.set_location(member.op->location());
  for (const auto& [i, tensor] : member.plan.constants()) {
    if (operands.size() <= i) operands.resize(i + 1);
    operands[i] = rewriter_.Constant(tensor);
  }
  return operands;
}

void LayoutRegion::Rebuild(Member& member) {
  Operation* op = member.op;
  const std::vector<Value> operands = OperandsOf(member);
  DictionaryAttribute attributes = op->attributes();
  for (const auto& [name, value] : member.plan.attributes()) {
    attributes = attributes.With(name, value);
  }
  Operation* const replaced[] = {op};
  const Rewriter::Replacing scope(rewriter_, replaced);
  Operation* made = rewriter_.Create(op->name(), operands, attributes.entries(), op->num_results());
  for (const auto& [i, perm] : member.plan.results()) {
    const auto old = op->result(i).type().cast<AnyTensorType>();
    if (old.has_rank()) {
      const Type type = old.With(old.element(), PermutedShape(old, perm));
      if (Compatible(made->result(i).type(), type)) rewriter_.SetResultType(made, i, type);
    }
    permuted_.emplace(op->result(i), made->result(i));
  }
  for (size_t i = 0; i < op->num_results(); ++i) {  // those that no permutation reaches
    if (permuted_.count(op->result(i)) == 0) {
      rewriter_.ReplaceAllUses(op->result(i), made->result(i));
    }
  }
}

/// Readers that are left get what they read: transposes of just this kind the permuted value,
/// others the value turned back.
void LayoutRegion::FinishValue(Value value) {
  const auto at = permuted_.find(value);
  if (at == permuted_.end()) return;
  const Readers readers = ReadersOf(value);
  for (Operation* transpose : readers.transposes) {
    if (transpose->result(0) == at->second) continue;
    rewriter_.ReplaceAllUses(transpose->result(0), at->second);
    rewriter_.Erase(transpose);
  }
  const Member* maker = MemberOf(value.defining_op());
  if (maker == nullptr || !maker->chosen) return;
  const bool needed = std::any_of(value.uses().begin(), value.uses().end(), [&](OpOperand use) {
    const Member* reader = MemberOf(use.owner());
    return reader == nullptr || !reader->chosen;
  });
  if (!needed) return;
  const Value back = NewTranspose(at->second, Inverse(labels_.at(value)), false);
  rewriter_.ReplaceAllUses(value, back);
}

void LayoutRegion::Apply() {
  std::vector<Member*> chosen;
  for (Member& m : members_) {
    if (m.chosen) chosen.push_back(&m);
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Member* a, const Member* b) { return a->op->IsBefore(b->op); });
  for (Member* m : chosen) Rebuild(*m);
  for (const Value value : values_) FinishValue(value);
  for (auto it = chosen.rbegin(); it != chosen.rend(); ++it) rewriter_.Erase((*it)->op);
  for (Operation* source : sources_) {
    if (source->use_empty()) rewriter_.Erase(source);
  }
}

// ---- merging ----

bool MergeTransposes(Program& program, Pass* pass) {
  PatternSet patterns;
  for (const CanonicalRow& row : OrderRules()) {
    if (std::string_view(row.name) == "transpose-of-transpose") AddCanonicalRow(row, patterns);
  }
  return ApplyPatternsGreedily(program, pass, patterns) != 0;
}

}  // namespace lathe
