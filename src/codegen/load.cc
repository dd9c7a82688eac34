#include "lathe/codegen/code_generator.h"
#include "lathe/support/companion.h"
#include "lathe/support/error.h"

namespace lathe::codegen {
namespace {

CodeGenerator& Load() {
  std::string why;
  void* entry = FindInCompanion("liblathe_codegen.so", "LatheCodeGenerator", why);
  if (entry == nullptr) {
    throw Error(ErrorCode::kUnsupported, "codegen/missing",
                StrCat("cannot load the code generator: ", why))
        .Hint("build Lathe where LLVM 19 is installed (Debian: llvm-19-dev)");
  }
  return *reinterpret_cast<CodeGenerator* (*)()>(entry)();
}

}  // namespace

CodeGenerator& CodeGenerator::Get() {
  static CodeGenerator& generator = Load();
  return generator;
}

}  // namespace lathe::codegen
