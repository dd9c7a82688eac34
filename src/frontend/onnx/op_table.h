#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/ir/context.h"

namespace lathe::onnx {

/// "ai.onnx" and "" are one domain; "" is its name here.
inline std::string_view NormalDomain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}
/// "Conv", or "com.acme.Conv" outside the default domain.
std::string QualifiedName(std::string_view domain, std::string_view op);

/// The set of ai.onnx in which the operator first appears; 1 for names that it does not know.
int FirstOpsetOf(std::string_view op);
/// A name from a file for a message: in quotes, cut where it is absurdly long.
std::string Shown(std::string_view name);

/// The registered ops by the ONNX operator that their declarations name.
class OpTable {
 public:
  explicit OpTable(IrContext& context);
  /// Null if no op stands for the operator.
  OpInfo Find(std::string_view domain, std::string_view op) const;
  /// "did you mean ...", or empty.
  std::string Suggestion(std::string_view domain, std::string_view op) const;

 private:
  std::map<std::pair<std::string, std::string>, OpInfo, std::less<>> ops_;
};

}  // namespace lathe::onnx
