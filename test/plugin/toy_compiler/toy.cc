// An external compiler that takes a few elementwise ops and gives back their names.
#include "lathe/ir/context.h"
#include "lathe/lower/external.h"
#include "lathe/support/error.h"

namespace {

std::string Refuse(const lathe::Operation* op) {
  for (const char* name : {"nn.add", "nn.mul", "nn.relu"}) {
    if (op->name() == name) return "";
  }
  return lathe::StrCat("it does not know ", op->name());
}

std::string Compile(const lathe::Operation* function, const lathe::Program&) {
  std::string code;
  for (const lathe::Operation& op : *function->region(0).front())
    code += lathe::StrCat(op.name(), ";");
  return code;
}

}  // namespace

extern "C" void LathePlugin(lathe::IrContext&) {
  lathe::ExternalCompilers::Global().Register({"toy", Refuse, Compile});
}
