#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "lathe/ir/program.h"

namespace lathe {

/// Which parameters of a program training leaves as they are, whoever reads them: those that a read
/// marks `constant`, and masks, which exporters that know no other place store among the weights.
class Constants {
 public:
  /// Looks at the reads of the program, those within regions, too; not at its data.
  explicit Constants(const Program& program);

  /// Why the parameter is not learned, as what follows "no gradient: "; empty if it may be. Reads
  /// the tensor if the program has it.
  std::string_view Why(std::string_view name) const;
  bool Contains(std::string_view name) const { return !Why(name).empty(); }

 private:
  const Program& program_;
  std::unordered_set<std::string_view> marked_;
};

/// Whether the operation reads a parameter as `constant`.
bool ReadsConstant(const Operation* op);

/// Whether the tensor is added to scores so that some of them do not count: it holds minus infinity
/// or the lowest number of its type, and no other infinity or NaN. No weight does.
bool IsMask(const Tensor& tensor);

}  // namespace lathe
