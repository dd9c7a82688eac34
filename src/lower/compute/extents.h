#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/ir/block.h"
#include "lathe/support/dim.h"

namespace lathe::lower {

/// Where a function finds the extents of its types at run time: they are those of its arguments, or
/// what an operation is told by an operand (the shape of a constant, the bounds of a slice).
class Extents {
 public:
  struct Source {
    Dim dim;
    Value argument;       ///< whose extent it is ...
    const Operation* op;  ///< ... or the operation of whose result it is
    size_t result;        ///< which one
    size_t axis;
    std::string symbol;  ///< that stands for `dim`
  };
  explicit Extents(const Block& function);

  const std::vector<Source>& sources() const { return sources_; }
  /// A dim of a type, over symbols of the sources; nothing if there is none for it.
  std::optional<Dim> Resolve(const Dim& dim) const;

 private:
  void Add(const Dim& dim, Value argument, const Operation* op, size_t result, size_t axis);
  bool IsKnown(const Dim& dim, bool from_arguments) const;
  bool KnowsOperand(const Operation& op, size_t axis) const;
  std::vector<Source> sources_;
};

/// Which entry of the shape of an `nn.expand` is for that axis of the result, if one is.
std::optional<size_t> ExpandEntry(const Operation& op, size_t axis);

}  // namespace lathe::lower
