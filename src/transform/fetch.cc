#include "src/transform/fetch.h"

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"

namespace lathe {

void Fetch(Program& program, const std::string& name, Value value) {
  Builder b = Builder::AtEnd(program.block());
  b.set_location(Location::Name(program.context(), name));
  const NamedAttribute named[] = {b.Named("name", b.Attr(name))};
  b.Create(nn::kFetch, {&value, 1}, named);
}

}  // namespace lathe
