#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/support/tensor.h"

namespace lathe {

/// A weight: type, data (owned, shared or memory-mapped), and whether running may change it.
struct Variable {
  Tensor data;
  bool is_mutable = false;
  size_t byte_size() const { return data.byte_size(); }
};

/// The weights of a program by name, in order of insertion. Never hashed by value, copied or
/// uniqued.
class ParameterMap {
 public:
  struct Entry {
    StrAttribute name;
    Variable variable;
  };
  /// Null if there is none.
  Variable* Find(StrAttribute name);
  Variable* Find(std::string_view name);
  const Variable* Find(std::string_view name) const;
  /// Adds a new variable; a taken name is an error (ir/duplicate-parameter).
  Variable& Insert(StrAttribute name, Variable variable);
  /// Replaces or adds.
  void Set(StrAttribute name, Variable variable);
  bool Erase(StrAttribute name);
  /// A name that is free: `base`, or `base.1`, `base.2`, ... in turn.
  StrAttribute FreshName(IrContext& context, std::string_view base) const;
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<const void*, size_t> index_;
};

/// One top-level `builtin.module` operation with one region of one block, and the weights that its
/// `builtin.get_parameter` ops name. Movable; must not outlive its context.
class Program {
 public:
  explicit Program(IrContext& context);
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;
  ~Program();

  IrContext& context() const { return *context_; }
  Operation* module() const { return module_.get(); }
  Block* block() const;
  ParameterMap& parameters() { return parameters_; }
  const ParameterMap& parameters() const { return parameters_; }

  /// A copy of the structure that shares the weights' data.
  Program Clone() const;
  /// Marks every variable immutable, then those that a `builtin.set_parameter` names mutable.
  void RefreshMutability();
  /// What a program reads and gives, in program order: its `nn.feed` and `nn.fetch` ops.
  std::vector<Operation*> feeds() const;
  std::vector<Operation*> fetches() const;

 private:
  IrContext* context_;
  OwningOp module_;
  ParameterMap parameters_;
};

/// Equal structure: ops, attributes, types, regions, operands by position, and locations if asked.
/// On a difference `why` (optional) says where.
bool StructurallyEqual(const Operation* a, const Operation* b, bool compare_locations = true,
                       std::string* why = nullptr);

}  // namespace lathe
