// Passes that are wrong, each in its own way: what checks passes must find them.
#include <cstdlib>
#include <string>

#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/plugin.h"

namespace lathe {
namespace {

std::vector<Operation*> AllNamed(Program& program, std::string_view name) {
  std::vector<Operation*> ops;
  for (OpWalker w(program.module()); Operation* op = w.Next();) {
    if (op->name() == name) ops.push_back(op);
  }
  return ops;
}

/// Takes every relu for the identity.
class BrokenRelu : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : AllNamed(graph.program(), "nn.relu")) {
      rewriter.ReplaceOp(op, op->operand(0));
      Count("dropped");
    }
  }
};
REGISTER_PASS(broken_relu, BrokenRelu).Doc("drops every relu");

/// Gets one element of a constant wrong.
class BrokenConstant : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : AllNamed(graph.program(), "builtin.constant")) {
      const Tensor value = op->attribute("value").cast<TensorAttribute>().value();
      if (value.element_type() != ElementType::kF32 || value.num_elements() == 0) continue;
      std::vector<double> values = ToDoubles(value);
      values.back() += option_float("by");
      const Tensor wrong = Cast(Tensor::Of<double>(value.shape(), values), ElementType::kF32);
      rewriter.SetAttribute(op, "value", TensorAttribute::Get(graph.context(), wrong));
    }
  }
};
REGISTER_PASS(broken_constant, BrokenConstant)
    .Doc("adds to the last element of every constant")
    .Option("by", PassOption::Kind::kFloat, "0.5", "how much");

/// Lets an exception of the standard library out.
class BrokenException : public Pass {
 protected:
  void ApplyImpl(Graph&) override { (void)std::string("relu").substr(5); }
};
REGISTER_PASS(broken_exception, BrokenException).Doc("throws std::out_of_range");

/// Ends the process.
class BrokenCrash : public Pass {
 protected:
  void ApplyImpl(Graph&) override { std::abort(); }
};
REGISTER_PASS(broken_crash, BrokenCrash).Doc("ends the process");

/// Gives the results of every relu another shape than the op can have.
class BrokenStructure : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : AllNamed(graph.program(), "nn.relu")) {
      const SymShape shape = SymShape::FromConstants(Shape{7, 7, 7});
      rewriter.SetResultType(op, 0, VTensorType::Get(graph.context(), shape, ElementType::kF32));
    }
  }
};
REGISTER_PASS(broken_structure, BrokenStructure).Doc("gives relu a result that it cannot have");

/// Moves an op in front of what it reads.
class BrokenOrder : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : AllNamed(graph.program(), "nn.relu")) {
      if (Operation* maker = op->operand(0).defining_op()) rewriter.MoveBefore(op, maker);
    }
  }
};
REGISTER_PASS(broken_order, BrokenOrder).Doc("moves every relu before what it reads");

/// Changes the program half-way and then gives up.
class BrokenThrow : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : AllNamed(graph.program(), "nn.relu")) {
      rewriter.ReplaceOp(op, op->operand(0));
      throw Error(ErrorCode::kUnsupported, "broken/throw", "this relu is too much");
    }
  }
};
REGISTER_PASS(broken_throw, BrokenThrow).Doc("fails in the middle of its work");

/// Training that no longer trains: the outputs stay the same.
class BrokenTraining : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    for (Operation* op : AllNamed(graph.program(), "builtin.set_parameter")) rewriter.Erase(op);
  }
};
REGISTER_PASS(broken_training, BrokenTraining).Doc("drops every set_parameter");

/// Runs into an assertion of the library.
class BrokenAssertion : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    LATHE_CHECK(AllNamed(graph.program(), "nn.relu").empty(), "there is never a relu");
  }
};
REGISTER_PASS(broken_assertion, BrokenAssertion).Doc("asserts what is not so");

/// Asks for an attribute as another type than it has.
class BrokenAttribute : public Pass {
 protected:
  void ApplyImpl(Graph&) override { Count("places", Get<int>("places")); }
};
REGISTER_PASS(broken_attribute, BrokenAttribute)
    .Doc("reads a text as a number")
    .RequirePassAttr("places")
    .DefaultPassAttr<std::string>("places", "here");

/// Changes the program behind the rewriter's back.
class BrokenSilence : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    for (Operation* op : AllNamed(graph.program(), "nn.relu")) {
      op->result(0).ReplaceAllUsesWith(op->operand(0));
    }
  }
};
REGISTER_PASS(broken_silence, BrokenSilence).Doc("drops every relu and tells nobody");

}  // namespace
}  // namespace lathe

LATHE_PLUGIN(context) {}
