#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/lower/lower_function.h"
#include "lathe/support/parallel.h"

namespace lathe {

/// The `builtin.call`s of each `builtin.func` of a program, those in regions too, by the function's
/// name.
class FunctionCalls {
 public:
  explicit FunctionCalls(const Program& program);
  /// In program order; empty for a function that nobody calls.
  const std::vector<Operation*>& Of(const Operation* function) const;
  /// Per argument, whether every call passes a constant, or a parameter that nothing sets.
  std::vector<bool> ConstantArguments(const Operation* function) const;

 private:
  const Program& program_;
  std::unordered_map<std::string_view, std::vector<Operation*>> calls_;  // looked up, not iterated
};

/// The tensor of a constant or of a parameter that nothing sets; null of anything else.
const Tensor* ConstantTensor(const Program& program, const Operation* op);

/// Has the calls of a lowered function pass its constant arguments in the order that it takes them
/// in: each tensor becomes a new parameter, one for all calls that want the same order of it.
/// What only the old calls read is gone then: of large weights there is never a second copy.
class ArgumentPacker {
 public:
  explicit ArgumentPacker(Program& program);
  void Apply(const std::vector<Operation*>& calls, const std::vector<lower::PackedLayout>& layouts);
  /// Writes the tensors that were asked for since the last time; they have no data before.
  void Pack(ThreadPool& pool);

  /// A constant in the order that some function takes it in.
  struct Packed {
    lower::PackedLayout layout;
    Value value;
  };
  /// Of a constant that is still read as it was.
  const std::vector<Packed>& FormsOf(const Operation* source) const;
  /// The form in that order; null if there is none.
  const Packed* Find(const Operation* source, const lower::PackedLayout& layout) const;
  /// Has a call take a constant in an order that there is.
  void Use(Operation* call, size_t argument, const lower::PackedLayout& layout);

 private:
  void MakeForm(Operation* source, const lower::PackedLayout& layout);
  /// A constant without uses, and its parameter if nobody else reads it.
  void Drop(Operation* source);

  struct Job {
    Tensor tensor;
    lower::PackedLayout layout;
    StrAttribute name;
    Tensor packed;
  };
  Program& program_;
  std::vector<Job> jobs_;
  std::unordered_map<const Operation*, std::vector<Packed>> packed_;  // looked up, not iterated
  std::unordered_map<std::string_view, size_t> readers_;  // of parameters; looked up, not iterated
};

}  // namespace lathe
