#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
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

/// In which orders kernels take constants, as far as they are known.
class PackedOrders {
 public:
  /// Of the calls of a function that has become a kernel.
  void Add(const std::vector<Operation*>& calls, std::span<const lower::PackedLayout> layouts);
  /// Of a constant, in the order in which they became known.
  std::span<const lower::PackedLayout> Of(const Operation* source) const;
  bool Has(const Operation* source, const lower::PackedLayout& order) const;

 private:
  std::unordered_map<const void*, std::vector<lower::PackedLayout>> orders_;  // looked up only
};

/// The constants of a program in the orders that kernels take them in. They lie beside the program,
/// whose calls pass constants as they are: nobody but the kernel that asked for an order sees it.
/// Kernels that want the same order of a constant share it.
class PackedConstants {
 public:
  /// `program` must live as long.
  explicit PackedConstants(const Program& program) : program_(program) {}

  /// Of a call whose kernel takes constants so.
  void Add(const Operation* call, std::span<const lower::PackedLayout> layouts);
  /// Writes the tensors of those that were added. What nobody else holds of the constants is given
  /// back one by one: of large weights there is never a second copy.
  void Pack(int threads);

  struct Packed {
    std::string name;  ///< that no parameter has
    Operation* source;
    lower::PackedLayout layout;
    Tensor tensor;  ///< none before Pack
  };
  const std::vector<Packed>& all() const { return all_; }
  /// The one of them that a call passes as an argument; none: its operand.
  std::optional<size_t> Find(const Operation* call, size_t argument) const;

 private:
  size_t IndexOf(Operation* source, const lower::PackedLayout& layout);
  std::string FreshName(const std::string& base);

  const Program& program_;
  std::vector<Packed> all_;
  std::vector<Tensor> raw_;  // of those that are to be packed
  // Looked up, not iterated.
  std::unordered_map<const void*, std::vector<size_t>> of_source_;
  std::unordered_map<const Operation*, std::vector<std::pair<size_t, size_t>>> of_call_;
  std::unordered_map<std::string, size_t> numbers_;
  std::unordered_set<std::string> names_;
};

/// Has the calls in a program that is lowered to loops pass what these take: each packed constant
/// becomes a parameter.
void PassPacked(Program& program, const PackedConstants& constants);

}  // namespace lathe
