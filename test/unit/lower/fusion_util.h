#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/fusion.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe::testing {

/// Builds a program op by op.
class Net {
 public:
  explicit Net(IrContext& context) : program_(context), b_(context), facts_(nullptr) {
    b_.SetInsertionPointToEnd(program_.block());
    b_.set_facts(&facts_);
  }

  Program& program() { return program_; }
  Builder& builder() { return b_; }

  Value X(const Shape& shape, ElementType element = ElementType::kF32) {
    return Feed(SymShape::FromConstants(shape), element);
  }
  Value Feed(const SymShape& shape, ElementType element = ElementType::kF32) {
    const Type type = VTensorType::Get(b_.context(), shape, element);
    const NamedAttribute name = b_.Named("name", b_.Attr(StrCat("x", feeds_++)));
    return Seen(b_.Create("nn.feed", {}, {&name, 1}, {&type, 1}))->result(0);
  }
  Value Constant(const Tensor& value) {
    const NamedAttribute attribute = b_.Named("value", b_.Attr(value));
    return Seen(b_.Create("builtin.constant", {}, {&attribute, 1}))->result(0);
  }
  Value Scalar(float value) { return Constant(Tensor::Scalar(value)); }
  Value Ints(const std::vector<int64_t>& values) {
    return Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
  }

  struct Attr {
    std::string name;
    Attribute value;
  };
  Attr Int(std::string name, int64_t value) { return {std::move(name), b_.Attr(value)}; }
  Attr IntList(std::string name, const std::vector<int64_t>& values) {
    return {std::move(name), b_.Attr(std::span<const int64_t>(values))};
  }
  Attr Bool(std::string name, bool value) { return {std::move(name), b_.Attr(value)}; }
  Attr Type_(std::string name, ElementType element) {
    return {std::move(name), TypeAttribute::Get(ElemType::Get(b_.context(), element))};
  }

  /// `nn.<name>`, its first result.
  Value Op(std::string_view name, const std::vector<Value>& operands,
           const std::vector<Attr>& attributes = {}) {
    return Many(name, operands, attributes, 1)->result(0);
  }
  Operation* Many(std::string_view name, const std::vector<Value>& operands,
                  const std::vector<Attr>& attributes, size_t results) {
    std::vector<NamedAttribute> named;
    for (const Attr& a : attributes) named.push_back(b_.Named(a.name, a.value));
    const OpInfo info = b_.context().GetOrMakeOp(StrCat("nn.", name));
    return Seen(b_.CreateInferred(info, operands, named, results));
  }
  /// A convolution with a kernel of its own; as many channels out as in.
  Value Conv(Value x, int64_t kernel = 1) {
    const int64_t channels = x.type().cast<AnyTensorType>().dims()[1].value();
    const Value w = X({channels, channels, kernel, kernel});
    return Op("conv", {x, w}, {IntList("pads", std::vector<int64_t>(4, kernel / 2))});
  }
  void Output(Value v) {
    const NamedAttribute name = b_.Named("name", b_.Attr(StrCat("y", outputs_++)));
    b_.Create("nn.fetch", {&v, 1}, {&name, 1});
  }

 private:
  Operation* Seen(Operation* op) {
    facts_.Visit(op);
    return op;
  }
  Program program_;
  Builder b_;
  ShapeInferencer facts_;
  int feeds_ = 0;
  int outputs_ = 0;
};

inline NamedValues RandomInputs(const Program& program, uint64_t seed, int64_t extent = 3) {
  NamedValues inputs;
  for (Operation* feed : program.feeds()) {
    const auto type = feed->result(0).type().cast<AnyTensorType>();
    Shape shape;
    for (const Dim& d : type.dims()) shape.push_back(d.is_constant() ? d.value() : extent);
    inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                        RandomTensor(type.element(), shape, seed, inputs.size()));
  }
  return inputs;
}

/// "conv+add": ops of a group in order, without their dialect.
inline std::string TextOf(const FusionGroup& group) {
  std::string text;
  for (const Operation* op : group.ops) {
    const std::string_view name = op->name();
    text += StrCat(text.empty() ? "" : "+", name.substr(name.find('.') + 1));
  }
  return text;
}

/// Whether no path leaves a group and comes back: following values from outside its members, none
/// is reached again.
inline bool IsConvex(const FusionGroup& group) {
  const std::set<const Operation*> members(group.ops.begin(), group.ops.end());
  std::set<const Operation*> seen;
  std::vector<const Operation*> open;
  const auto follow = [&](const Operation* op) {
    for (size_t r = 0; r < op->num_results(); ++r) {
      for (const OpOperand use : op->result(r).uses()) {
        const Operation* user = use.owner();
        if (members.count(op) != 0 && members.count(user) != 0) continue;
        if (seen.insert(user).second) open.push_back(user);
      }
    }
  };
  for (const Operation* op : group.ops) follow(op);
  while (!open.empty()) {
    const Operation* op = open.back();
    open.pop_back();
    if (members.count(op) != 0) return false;
    follow(op);
  }
  return true;
}

class NetTest : public ::testing::Test {
 protected:
  NetTest() { LoadAllDialects(context_); }

  static void RunPasses(Program& program, std::string_view pipeline) {
    PassManager manager({.verify_each = true});
    manager.Add(pipeline);
    manager.Run(program);
  }

  /// The groups in order, "matmul+add | exp"; each is convex, and the program of groups gives the
  /// same bits.
  std::string Groups(Net& net, const FusionOptions& options = {}) {
    std::string text;
    const std::string before = Print(net.program());
    for (const FusionGroup& group : PlanFusion(net.program().block(), options).groups) {
      EXPECT_TRUE(IsConvex(group)) << TextOf(group);
      text += StrCat(text.empty() ? "" : " | ", TextOf(group));
    }
    EXPECT_EQ(Print(net.program()), before);  // a plan is only a plan
    const NamedValues inputs = RandomInputs(net.program(), 1);
    const NamedValues expected = Interpreter(net.program()).Run(inputs);
    Program grouped = net.program().Clone();
    RunPasses(grouped, StrCat("graph_fuse_partition{max_ops=", options.max_ops,
                              ",opt_level=", options.fuse ? 1 : 0, "}"));
    EXPECT_EQ(Interpreter(grouped).Run(inputs), expected);
    const std::string printed = Print(grouped);
    Program again = ParseProgram(context_, printed, {.file_locations = false});
    EXPECT_EQ(Print(again), printed);
    return text;
  }

  template <class F>
  static Error ErrorOf(F&& fn) {
    try {
      fn();
    } catch (Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "", "no error");
  }

  IrContext context_;
};

}  // namespace lathe::testing
