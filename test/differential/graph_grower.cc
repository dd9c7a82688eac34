#include "test/differential/graph_grower.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/op_kind.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/repeat.h"

namespace lathe::testing {

namespace {

constexpr int64_t kMostElements = 6000;

/// Ops of loops stand in loops that lowering makes, those between devices where a pass puts them,
/// and views are made by a pass, too.
bool Usable(OpInfo info) {
  if (!info.name().starts_with("nn.") || info.def() == nullptr) return false;
  if (!info.HasTrait<HasValueSemantics>() || info.HasTrait<lathe::Random>()) return false;
  const OpDef& def = *info.def();
  const auto is_tensor = [](const ValueDef& v) {
    const TypeRule::Kind kind = v.type.kind;
    return kind == TypeRule::Kind::kVariable || kind == TypeRule::Kind::kElement ||
           kind == TypeRule::Kind::kTensor;
  };
  const auto is_result = [&](const ValueDef& v) {
    return is_tensor(v) || v.type.kind == TypeRule::Kind::kFromAttr ||
           v.type.kind == TypeRule::Kind::kAny;
  };
  return !def.results.empty() && def.regions.empty() &&
         info.GetInterface<EvalInterface>() != nullptr &&
         std::ranges::all_of(def.operands, is_tensor) &&
         std::ranges::all_of(def.results, is_result);
}

bool IsPointwise(OpInfo info) {
  const OpDef& def = *info.def();
  const auto plain = [](const ValueDef& v) {
    return v.type.kind == TypeRule::Kind::kVariable || v.type.kind == TypeRule::Kind::kElement;
  };
  const auto given = [](const AttrDef& a) {
    return a.optional || a.default_text != nullptr || !a.one_of.empty();
  };
  return info.HasTrait<Elementwise>() && !def.operands.empty() &&
         std::ranges::all_of(def.operands, plain) && std::ranges::all_of(def.attributes, given);
}

/// Whether it is worth going on from here: most numbers are finite, none is enormous.
bool IsTame(const Tensor& t) {
  if (!IsFloat(t.element_type()) || t.num_elements() == 0) return true;
  const std::vector<double> values = ToDoubles(t);
  const auto wild = std::ranges::count_if(
      values, [](double v) { return !std::isfinite(v) || std::abs(v) > 1e4; });
  return wild * 3 <= t.num_elements();
}

std::vector<NamedAttribute> NamedAttributes(Builder& b, const OpSample& sample) {
  std::vector<NamedAttribute> result;
  for (const auto& [name, value] : sample.attributes) result.push_back(b.Named(name, value));
  return result;
}

}  // namespace

GraphGrower::GraphGrower(IrContext& context, uint64_t seed, std::set<std::string> only)
    : context_(context),
      random_(seed),
      sampler_(context, ReadSampleHints(), seed),
      only_some_(!only.empty()) {
  for (const OpInfo info : context.ops()) {
    if (!Usable(info) || (only_some_ && !only.contains(std::string(info.name())))) continue;
    if (IsPointwise(info)) pointwise_.push_back(info);
    if (sampler_.ReasonAgainst(info).empty()) sampled_.push_back(info);
  }
  for (const char* name : {"cf.if", "cf.while", "cf.scan"}) {
    if (!only_some_ || only.contains(name)) regions_.insert(name);
  }
}

Case GraphGrower::Grow() {
  program_.emplace(context_);
  facts_ = std::make_unique<ShapeInferencer>(&program_->parameters());
  b_ = std::make_unique<Builder>(Builder::AtEnd(program_->block()));
  b_->set_facts(facts_.get());
  static constexpr ElementType kUsual[] = {ElementType::kF32, ElementType::kF32,  ElementType::kF32,
                                           ElementType::kF16, ElementType::kBF16, ElementType::kF64,
                                           ElementType::kI64, ElementType::kI32,  ElementType::kI8};
  usual_ = kUsual[Pick(std::size(kUsual))];
  style_ = OneIn(8) ? DataStyle::kSpecial : OneIn(4) ? DataStyle::kUniform : DataStyle::kQuarters;
  symbolic_in_ten_ = OneIn(3) ? 0 : static_cast<int>(Int(2, 9));
  grows_regions_ = !regions_.empty() && (only_some_ || OneIn(5));
  computes_sizes_ = !only_some_ && OneIn(5);
  grows_lists_ = !only_some_ && OneIn(12);
  for (size_t i = 0, leaves = 1 + Pick(3); i < leaves; ++i) {
    std::vector<Dim> dims;
    const size_t rank = OneIn(6) ? Pick(7) : 2 + Pick(3);
    for (size_t d = 0; d < rank; ++d) dims.push_back(MaybeSymbol(rank > 4 ? Int(1, 3) : Extent()));
    (void)Leaf(i == 0 ? usual_ : Element(), dims, LeafKind::kFeed);
  }
  if (values_.empty()) (void)Leaf(usual_, {Dim(3)}, LeafKind::kFeed);  // the others were large
  const size_t wanted = 2 + Pick(9);
  for (size_t made = 0, tries = 0; made < wanted && tries < 30 * wanted; ++tries) made += Step();
  Outputs();
  buried_.clear();
  Program program = OneIn(3) ? Weakened(*program_) : program_->Clone();
  std::vector<InputSet> inputs = Inputs(program);
  return {std::move(program), std::move(inputs), Kinds()};
}

/// Of what is in the program after all.
std::vector<std::string> GraphGrower::Kinds() const {
  std::set<std::string> kinds;
  for (OpWalker walk(program_->block()); const Operation* op = walk.Next();) {
    if (op->num_regions() > 0)
      kinds.insert(op->parent_op()->num_regions() > 0 && op->block() != program_->block()
                       ? "with regions within regions"
                       : "with regions");
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (op->result(i).type().isa<ListType>()) kinds.insert("with lists");
    }
  }
  for (const Feed& feed : feeds_) {
    const auto is_read = [&](const Operation* op) {
      return op->attribute("name").cast<StrAttribute>().value() == feed.name;
    };
    if (feed.decides && std::ranges::any_of(program_->feeds(), is_read))
      kinds.insert("with numbers that decide");
  }
  return {kinds.begin(), kinds.end()};
}

// ---- choices ----

size_t GraphGrower::Pick(size_t count) {
  return static_cast<size_t>(random_.Int(0, static_cast<int64_t>(count) - 1));
}

int64_t GraphGrower::Extent() {
  static constexpr int64_t kUsual[] = {1, 2, 3, 4, 5, 6, 7, 8};
  static constexpr int64_t kOdd[] = {1, 9, 12, 13, 15, 16, 17, 24, 31, 32, 33, 48, 65};
  if (OneIn(40)) return 0;
  return OneIn(3) ? kOdd[Pick(std::size(kOdd))] : kUsual[Pick(std::size(kUsual))];
}

ElementType GraphGrower::Element() {
  static constexpr ElementType kAll[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16,
                                         ElementType::kF64, ElementType::kI64, ElementType::kI32,
                                         ElementType::kI16, ElementType::kI8,  ElementType::kU64,
                                         ElementType::kU32, ElementType::kU16, ElementType::kU8,
                                         ElementType::kBool};
  return OneIn(2) ? usual_ : kAll[Pick(std::size(kAll))];
}

/// Late ones are likelier, so that graphs become deep.
Value GraphGrower::AnyValue() {
  const size_t at =
      OneIn(2) ? Pick(values_.size()) : std::max(Pick(values_.size()), Pick(values_.size()));
  return values_[at];
}

Value GraphGrower::AnyValue(bool (*fits)(AnyTensorType)) {
  for (int tries = 0; tries < 12; ++tries) {
    const Value v = AnyValue();
    if (fits(v.type().cast<AnyTensorType>())) return v;
  }
  return {};
}

// ---- leaves ----

Dim GraphGrower::MaybeSymbol(int64_t extent) {
  if (Int(0, 9) >= symbolic_in_ten_) return extent;
  const std::string name = StrCat("S", extent);
  if (std::ranges::none_of(symbols_, [&](const auto& s) { return s.first == name; })) {
    symbols_.emplace_back(name, extent);
  }
  return Dim::Symbol(name);
}

int64_t GraphGrower::ExtentOf(const Dim& dim) const {
  return dim.Evaluate(std::span<const Dim::Binding>(symbols_)).value_or(-1);
}

std::vector<Dim> GraphGrower::DimsOf(Value v) const {
  const Shape& shape = DataOf(v).shape();
  const auto type = v.type().cast<AnyTensorType>();
  std::vector<Dim> dims(shape.begin(), shape.end());
  for (size_t i = 0; i < dims.size() && type.has_rank(); ++i) {
    if (ExtentOf(type.dims()[i]) == shape[i]) dims[i] = type.dims()[i];
  }
  return dims;
}

Value GraphGrower::Leaf(ElementType element, const std::vector<Dim>& dims, LeafKind kind) {
  Shape shape;
  for (const Dim& d : dims) shape.push_back(ExtentOf(d));
  if (std::ranges::any_of(shape, [](int64_t d) { return d < 0; })) return {};
  if (NumElements(shape) > kMostElements) return {};
  return LeafOf(RandomData(element, shape, style_, random_), dims, kind);
}

Value GraphGrower::LeafOf(const Tensor& data, const std::vector<Dim>& dims, LeafKind kind) {
  const bool fixed = SymShape(dims).IsConstant();
  if (kind == LeafKind::kAny) {
    kind = !fixed || OneIn(2) ? LeafKind::kFeed
           : OneIn(2)         ? LeafKind::kWeights
                              : LeafKind::kConstant;
  }
  if (kind == LeafKind::kWeights && !fixed) kind = LeafKind::kFeed;
  Operation* op = nullptr;
  const Type type = VTensorType::Get(
      context_, kind == LeafKind::kFeed ? SymShape(dims) : SymShape::FromConstants(data.shape()),
      data.element_type());
  if (kind == LeafKind::kConstant) {
    const NamedAttribute value = Named("value", data);
    op = b_->Create("builtin.constant", {}, {&value, 1});
  } else if (kind == LeafKind::kWeights) {
    const StrAttribute name = program_->parameters().FreshName(context_, "w");
    program_->parameters().Insert(name, {data, false});
    const NamedAttribute named = b_->Named("name", name);
    op = b_->Create("builtin.get_parameter", {}, {&named, 1}, {&type, 1});
  } else {
    const std::string name = StrCat("x", names_++);
    feeds_.push_back({name, dims, data});
    const NamedAttribute named = Named("name", std::string_view(name));
    Builder outside = outermost_ != nullptr ? Builder::Before(outermost_) : *b_;
    op = outside.Create("nn.feed", {}, {&named, 1}, {&type, 1});
  }
  facts_->Visit(op);
  data_[op->result(0)] = data;
  if (kind == LeafKind::kFeed && data.element_type() != ElementType::kString) {
    values_.push_back(op->result(0));
  }
  return op->result(0);
}

Value GraphGrower::Ints(const std::vector<int64_t>& values) {
  return Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Value GraphGrower::Scalar(ElementType element, double value) {
  return Constant(lathe::Cast(Tensor::Of<double>({}, {value}), element));
}

// ---- ops ----

NamedAttribute GraphGrower::List(std::string_view name, const std::vector<int64_t>& values) {
  return b_->Named(name, b_->Attr(std::span<const int64_t>(values)));
}

Value GraphGrower::Op(std::string_view name, const std::vector<Value>& operands,
                      const Attributes& attributes) {
  return Add(name, operands, attributes) ? values_.back() : Value();
}

bool GraphGrower::Add(std::string_view name, const std::vector<Value>& operands,
                      const Attributes& attributes, size_t num_results) {
  return Accept(context_.FindOp(StrCat("nn.", name)), operands, attributes, num_results);
}

bool GraphGrower::Accept(OpInfo info, const std::vector<Value>& operands,
                         const Attributes& attributes, size_t num_results) {
  Operation* op = nullptr;
  try {
    op = b_->CreateInferred(info, operands, attributes, num_results);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) throw;
    return false;
  }
  std::vector<RtValue> results = Try(op);
  const bool tame = std::ranges::all_of(
      results, [](const RtValue& r) { return !r.is_tensor() || IsTame(r.tensor()); });
  if (results.empty() || (!tame && !OneIn(12))) {
    op->Erase();
    return false;
  }
  facts_->Visit(op);
  for (size_t i = 0; i < results.size(); ++i) {
    data_[op->result(i)] = results[i];
    if (op->result(i).type().isa<AnyTensorType>()) values_.push_back(op->result(i));
  }
  last_ = op;
  return true;
}

/// Results on the data at hand; none if the op refuses them or they are large.
std::vector<RtValue> GraphGrower::Try(Operation* op) {
  if (!Verify(op).empty()) return {};
  std::vector<RtValue> inputs;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    inputs.push_back(v ? data_.at(v) : RtValue());
  }
  try {
    const AllocationLimit limit(1 << 20);
    std::vector<RtValue> results = EvalOp(op, inputs);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].is_list() && op->result(i).type().isa<ListType>()) continue;
      if (!results[i].is_tensor() || results[i].tensor().num_elements() > kMostElements) return {};
      if (!op->result(i).type().isa<AnyTensorType>()) return {};
    }
    return results;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) throw;
    return {};
  }
}

bool GraphGrower::Step() {
  static const std::vector<Recipe> kRecipes = Recipes(), kComputed = ComputedRecipes();
  if (grows_regions_ && depth_ < 2 && OneIn(depth_ == 0 ? 3 : 6)) return WithRegions();
  if (computes_sizes_ && OneIn(3)) return (this->*kComputed[Pick(kComputed.size())])(AnyValue());
  if (grows_lists_ && OneIn(4)) return Lists(AnyValue());
  const size_t kind = Pick(10);
  if (!only_some_ && kind < 4) return (this->*kRecipes[Pick(kRecipes.size())])(AnyValue());
  if (kind < 7 && !pointwise_.empty()) return Pointwise();
  return !sampled_.empty() && Sampled();
}

/// Something that broadcasts with `v`: itself, another value, or a leaf.
Value GraphGrower::Partner(Value v, ElementType element) {
  if (OneIn(8) && v.type().cast<AnyTensorType>().element() == element) return v;
  for (int tries = 0; tries < 6; ++tries) {
    const Value w = AnyValue();
    const auto type = w.type().cast<AnyTensorType>();
    if (type.element() != element || OneIn(3)) continue;
    const Shape &a = DataOf(v).shape(), &b = DataOf(w).shape();
    bool fits = true;
    for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
      const int64_t x = a[a.size() - i], y = b[b.size() - i];
      fits = fits && (x == y || x == 1 || y == 1);
    }
    if (fits) return w;
  }
  std::vector<Dim> dims = DimsOf(v);
  if (OneIn(3))
    dims.erase(dims.begin(), dims.begin() + static_cast<int64_t>(Pick(dims.size() + 1)));
  for (Dim& d : dims) {
    if (OneIn(5)) d = 1;
    if (d.IsConstant(1) && OneIn(8)) d = MaybeSymbol(Extent());
  }
  return Leaf(element, dims);
}

bool GraphGrower::Pointwise() {
  const OpInfo info = pointwise_[Pick(pointwise_.size())];
  const OpDef& def = *info.def();
  std::vector<ElementType> bound(def.type_sets.size(), ElementType::kUndefined);
  std::vector<Value> operands;
  const auto element_of = [&](const ValueDef& operand) {
    if (operand.type.kind == TypeRule::Kind::kElement) return operand.type.element;
    ElementType& element = bound[operand.type.index];
    const auto& set = def.type_sets[operand.type.index].elements;
    for (int tries = 0; tries < 8 && element == ElementType::kUndefined; ++tries) {
      const ElementType wanted = AnyValue().type().cast<AnyTensorType>().element();
      if (std::ranges::find(set, wanted) != set.end()) element = wanted;
    }
    if (element == ElementType::kUndefined) element = set[Pick(set.size())];
    return element;
  };
  for (const ValueDef& operand : def.operands) {
    const size_t count = operand.variadic ? 1 + Pick(4) : 1;
    for (size_t i = 0; i < count; ++i) {
      if (operand.optional && OneIn(2)) {
        operands.emplace_back();
        continue;
      }
      const ElementType element = element_of(operand);
      Value v;
      for (int tries = 0; operands.empty() && tries < 8 && !v; ++tries) {
        const Value w = AnyValue();
        if (w.type().cast<AnyTensorType>().element() == element) v = w;
      }
      if (!v) v = Partner(operands.empty() ? AnyValue() : operands[0], element);
      if (!v) return false;
      operands.push_back(v);
    }
  }
  while (!operands.empty() && !operands.back()) operands.pop_back();
  Attributes attributes;
  for (const AttrDef& a : def.attributes) {
    if (!a.one_of.empty() && (OneIn(2) || !(a.optional || a.default_text != nullptr))) {
      attributes.push_back(Named(a.name, std::string_view(a.one_of[Pick(a.one_of.size())])));
    }
  }
  return Accept(info, operands, attributes, def.results.size());
}

bool GraphGrower::Sampled() {
  const OpInfo info = sampled_[Pick(sampled_.size())];
  const std::vector<OpSample> samples = sampler_.Samples(info);
  const OpSample& sample = samples[Pick(samples.size())];
  const auto plain = [](const RtValue& v) { return v.is_none() || v.is_tensor(); };
  if (!std::ranges::all_of(sample.inputs, plain)) return false;
  const std::vector<Value> operands = SampleOperands(sample, !OneIn(3));
  if (operands.size() != sample.inputs.size()) return false;
  if (Accept(info, operands, SampleAttributes(sample), sample.num_results)) return true;
  const std::vector<Value> plainly = SampleOperands(sample, false);
  return plainly.size() == sample.inputs.size() &&
         Accept(info, plainly, NamedAttributes(*b_, sample), sample.num_results);
}

std::vector<Value> GraphGrower::SampleOperands(const OpSample& sample, bool other_sizes) {
  const auto* kind = sample.info.GetInterface<OpKindInterface>();
  std::vector<std::pair<int64_t, int64_t>> sizes;
  const auto size_for = [&](int64_t extent) {
    for (const auto& [from, to] : sizes) {
      if (from == extent) return to;
    }
    sizes.emplace_back(extent, other_sizes && OneIn(3) ? Extent() : extent);
    return sizes.back().second;
  };
  std::vector<Value> operands;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    if (sample.inputs[i].is_none()) {
      operands.emplace_back();
      continue;
    }
    const Tensor& given = sample.inputs[i].tensor();
    const bool whole = kind != nullptr && i < 64 && (kind->whole >> i & 1) != 0;
    if (whole && !OneIn(12)) {
      operands.push_back(Constant(given));
      continue;
    }
    Shape shape = given.shape();
    for (int64_t& d : shape) d = whole ? d : size_for(d);
    if (NumElements(shape) > kMostElements || (given.num_elements() == 0 && NumElements(shape) > 0))
      return {};
    const bool adapt = IsFloat(given.element_type()) && BitWidth(given.element_type()) >= 16;
    if (adapt && !whole && (i == 0 ? !OneIn(4) : OneIn(4))) {
      operands.push_back(Adapted(given.element_type(), shape));
      if (!operands.back()) return {};
      continue;
    }
    std::vector<Dim> dims;
    for (const int64_t d : shape) dims.push_back(MaybeSymbol(d));
    operands.push_back(LeafOf(Repeated(given, shape), dims, LeafKind::kAny));
  }
  return operands;
}

/// A value with all its elements and, if they are too few, zeros, in another shape.
Value GraphGrower::Adapted(ElementType element, const Shape& shape) {
  Value v = AnyValue();
  for (int tries = 0; tries < 8 && !SymShape(DimsOf(v)).IsConstant(); ++tries) v = AnyValue();
  for (const Value w : values_) {
    const auto type = w.type().cast<AnyTensorType>();
    if (type.element() == element && DataOf(w).shape() == shape && OneIn(2)) return w;
  }
  const ElementType from = v.type().cast<AnyTensorType>().element();
  if (IsComplex(from) || from == ElementType::kString) return {};
  if (from != element) {
    const NamedAttribute to = b_->Named("to", TypeAttribute::Get(ElemType::Get(context_, element)));
    v = Op("cast", {v}, {to});
  }
  const int64_t wanted = NumElements(shape);
  if (v && (!SymShape(DimsOf(v)).IsConstant() || DataOf(v).num_elements() != wanted)) {
    v = Op("reshape", {v, Ints({-1})});
    if (v) v = Op("pad", {v, Ints({0, wanted})});
    if (v) v = Op("slice", {v, Ints({0}), Ints({wanted})});
  }
  return v ? Op("reshape", {v, Ints(shape)}, {Named("allowzero", wanted == 0)}) : v;
}

/// Those of the sample, and one choice of others that may be chosen.
GraphGrower::Attributes GraphGrower::SampleAttributes(const OpSample& sample) {
  Attributes attributes = NamedAttributes(*b_, sample);
  for (const AttrDef& def : sample.info.def()->attributes) {
    if (std::ranges::any_of(sample.attributes,
                            [&](const auto& a) { return a.first == def.name; })) {
      continue;
    }
    if (!OneIn(3)) continue;
    if (!def.one_of.empty()) {
      attributes.push_back(Named(def.name, std::string_view(def.one_of[Pick(def.one_of.size())])));
    } else if (def.kind == AttrKind::kBool) {
      attributes.push_back(Named(def.name, OneIn(2)));
    } else if (def.kind == AttrKind::kInt && std::string_view(def.name) == "axis") {
      attributes.push_back(Named(def.name, Int(-2, 2)));
    }
  }
  return attributes;
}

}  // namespace lathe::testing
