#include "lathe/ir/dialect.h"

namespace lathe {

Type Dialect::ParseType(std::string_view, AsmParser&) { return Type(); }
Attribute Dialect::ParseAttribute(std::string_view, AsmParser&) { return Attribute(); }

}  // namespace lathe
