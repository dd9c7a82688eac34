#pragma once

#include <memory>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/ir/type_id.h"

namespace lathe {

/// Which analyses a pass leaves true.
class PreservedAnalyses {
 public:
  static PreservedAnalyses All();
  static PreservedAnalyses None() { return PreservedAnalyses(); }
  template <class A>
  PreservedAnalyses& Preserve() {
    kept_.push_back(TypeId::Get<A>());
    return *this;
  }
  bool preserves_all() const { return all_; }
  bool Preserves(TypeId id) const;

 private:
  bool all_ = false;
  std::vector<TypeId> kept_;
};

/// Computes analyses on demand and keeps them until a pass that does not preserve them has changed
/// the program. An analysis is a class with a constructor from `const Program&`.
class AnalysisManager {
 public:
  explicit AnalysisManager(const Program& program) : program_(program) {}
  template <class A>
  A& Get() {
    if (void* found = Find(TypeId::Get<A>())) return *static_cast<A*>(found);
    auto made = std::make_shared<A>(program_);
    A& result = *made;
    entries_.push_back({TypeId::Get<A>(), std::move(made)});
    return result;
  }
  /// The analysis if it is there and true.
  template <class A>
  A* GetCached() {
    return static_cast<A*>(Find(TypeId::Get<A>()));
  }
  void Invalidate(const PreservedAnalyses& preserved);

 private:
  void* Find(TypeId id) const;
  struct Entry {
    TypeId id;
    std::shared_ptr<void> analysis;
  };
  const Program& program_;
  std::vector<Entry> entries_;
};

}  // namespace lathe
