#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/support/dim.h"
#include "lathe/support/random.h"
#include "test/differential/random_data.h"
#include "test/unit/dialect/op_sampler.h"

namespace lathe::testing {

/// Values for the inputs of a program, and what is special about them: "N=1", "x3 has 5 for 4".
struct InputSet {
  std::string label;
  NamedValues values;
  bool decides = false;  ///< has other numbers in what decides sizes
};

/// A program to try, and on what. The first set is the one it was grown on: valid.
struct Case {
  Program program;
  std::vector<InputSet> inputs;
  std::vector<std::string> kinds = {};  ///< what it was grown of, for the counts: "with regions"
};

/// Grows valid graphs over all ops of the table: each new op reads values made before and leaves
/// (inputs, parameters, constants), and is evaluated at once, so what does not fit is not kept. The
/// same seed grows the same graph on every machine.
class GraphGrower {
 public:
  /// Only ops of these names, with what adapts values to them; empty: all.
  GraphGrower(IrContext& context, uint64_t seed, std::set<std::string> only = {});

  Case Grow();

 private:
  using Attributes = std::vector<NamedAttribute>;
  using Recipe = bool (GraphGrower::*)(Value);
  struct Feed {
    std::string name;
    std::vector<Dim> dims;  ///< as declared first, so that all sizes are known
    Tensor data;
    bool decides = false;  ///< sizes, or how often a loop runs
  };
  enum class LeafKind : uint8_t { kAny, kConstant, kWeights, kFeed };

  // ---- choices ----
  size_t Pick(size_t count);
  bool OneIn(size_t count) { return Pick(count) == 0; }
  int64_t Int(int64_t low, int64_t high) { return random_.Int(low, high); }
  int64_t Extent();
  ElementType Element();
  Value AnyValue();
  Value AnyValue(bool (*fits)(AnyTensorType));

  // ---- leaves ----
  Value Leaf(ElementType element, const std::vector<Dim>& dims, LeafKind kind = LeafKind::kAny);
  Value LeafOf(const Tensor& data, const std::vector<Dim>& dims, LeafKind kind);
  Value Constant(const Tensor& data) { return LeafOf(data, {}, LeafKind::kConstant); }
  Value Ints(const std::vector<int64_t>& values);
  Value Scalar(ElementType element, double value);
  /// A symbol that stands for the extent, in some programs; else the extent.
  Dim MaybeSymbol(int64_t extent);
  /// The dims of a value as leaves may declare them: constants and expressions over symbols.
  std::vector<Dim> DimsOf(Value v) const;
  int64_t ExtentOf(const Dim& dim) const;
  const Tensor& DataOf(Value v) const { return data_.at(v).tensor(); }
  ElementType ElementOf(Value v) const { return DataOf(v).element_type(); }

  // ---- ops ----
  Value Op(std::string_view name, const std::vector<Value>& operands,
           const Attributes& attributes = {});
  bool Add(std::string_view name, const std::vector<Value>& operands,
           const Attributes& attributes = {}, size_t num_results = 1);
  bool Accept(OpInfo info, const std::vector<Value>& operands, const Attributes& attributes,
              size_t num_results);
  std::vector<RtValue> Try(Operation* op);
  NamedAttribute List(std::string_view name, const std::vector<int64_t>& values);
  template <class T>
  NamedAttribute Named(std::string_view name, T value) {
    return b_->Named(name, b_->Attr(value));
  }
  bool Step();
  /// An elementwise op on values that broadcast.
  bool Pointwise();
  Value Partner(Value v, ElementType element);
  /// Any op on a sample of its declaration, in other sizes and on values that were there.
  bool Sampled();
  std::vector<Value> SampleOperands(const OpSample& sample, bool other_sizes);
  Value Adapted(ElementType element, const Shape& shape);
  Attributes SampleAttributes(const OpSample& sample);

  // ---- recipes: what samples do not vary enough (recipes.cc) ----
  static std::vector<Recipe> Recipes();
  bool Transpose(Value v);
  bool Reshape(Value v);
  bool ReshapeLike(Value v);
  bool Unsqueeze(Value v);
  bool Slice(Value v);
  bool Concat(Value v);
  bool Split(Value v);
  bool Pad(Value v);
  bool Expand(Value v);
  bool Gather(Value v);
  bool Reduce(Value v);
  bool AlongAxis(Value v);
  bool Normalize(Value v);
  bool Cast(Value v);
  bool Where(Value v);
  bool Matmul(Value v);
  bool Gemm(Value v);
  bool Conv(Value v);
  bool Conv3x3(Value v);
  bool Pool(Value v);
  bool Window(Value v);
  std::vector<int64_t> Factors(int64_t extent);
  Attributes WindowAttributes(const Shape& spatial, std::vector<int64_t>& kernel);

  // ---- sizes that only data tell (computed_sizes.cc) ----
  static std::vector<Recipe> ComputedRecipes();
  Value Computed(const Tensor& data);
  Value ComputedInts(const std::vector<int64_t>& values);
  bool Positions(Value v);
  bool Kept(Value v);
  bool Counted(Value v);
  bool ComputedSlice(Value v);
  bool ComputedTopK(Value v);
  bool ComputedPad(Value v);
  bool ComputedExpand(Value v);
  bool ComputedReshape(Value v);
  bool ComputedFill(Value v);
  bool ComputedResize(Value v);
  bool ComputedSplit(Value v);
  bool Different(Value v);
  bool Boxes(Value v);
  bool Lists(Value v);
  Value ListOp(std::string_view name, const std::vector<Value>& operands,
               const Attributes& attributes = {});

  // ---- ops with regions (regions.cc) ----
  using Yields = std::vector<Value>;
  bool WithRegions();
  bool If();
  bool Loop();
  bool Scan();
  Value Condition();
  Value TripCount();
  Value GoesOn(Value iteration, bool ends);
  Value Like(Value v, bool same_shape);
  Value Next(Value carried);
  Operation* Open(std::string_view name, const std::vector<Value>& operands,
                  const Attributes& attributes, size_t num_results, size_t num_regions);
  /// Grows a region whose arguments first are `arguments`; false if it yields nothing.
  template <class F>
  bool Fill(Region& region, const std::vector<Tensor>& arguments, F&& grow);
  bool Close(Operation* op, bool filled);
  void Bury(Operation* op);

  // ---- what is declared, and run ----
  void Outputs();
  std::vector<std::string> Kinds() const;
  Program Weakened(const Program& program);
  std::vector<InputSet> Inputs(const Program& program);
  NamedValues InputsFor(const Program& program, const std::vector<Dim::Binding>& binding);
  std::optional<InputSet> Hostile(const Program& program, const NamedValues& base);
  std::optional<InputSet> OtherDecisions(const NamedValues& base);

  IrContext& context_;
  RandomStream random_;
  OpSampler sampler_;
  std::vector<OpInfo> pointwise_, sampled_;
  std::set<std::string> regions_;  ///< ops with regions that may be grown
  bool only_some_ = false;
  bool grows_regions_ = false, computes_sizes_ = false, grows_lists_ = false;

  DataStyle style_ = DataStyle::kQuarters;
  int symbolic_in_ten_ = 0;  ///< leaves' dims that are symbols
  ElementType usual_ = ElementType::kF32;
  std::vector<Dim::Binding> symbols_;
  std::vector<Feed> feeds_;
  std::vector<Value> values_;
  std::unordered_map<Value, RtValue> data_;
  std::optional<Program> program_;
  std::vector<OwningOp> buried_;  ///< did not work; kept, so that facts about them are of no other
  std::unique_ptr<ShapeInferencer> facts_;
  std::unique_ptr<Builder> b_;
  size_t names_ = 0;
  Operation* outermost_ = nullptr;  ///< whose region grows; null: none
  size_t depth_ = 0;                ///< of regions
  Operation* last_ = nullptr;       ///< accepted
};

}  // namespace lathe::testing
