#include <dlfcn.h>

#include <filesystem>

#include "lathe/codegen/code_generator.h"
#include "lathe/support/error.h"

namespace lathe::codegen {
namespace {

constexpr const char* kLibrary = "liblathe_codegen.so";
constexpr const char* kEntry = "LatheCodeGenerator";

// The folder of the library that this code is in.
std::filesystem::path OwnFolder() {
  Dl_info info;
  LATHE_CHECK(dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) != 0, "no own library");
  return std::filesystem::path(info.dli_fname).parent_path();
}

CodeGenerator& Load() {
  const std::string path = (OwnFolder() / kLibrary).string();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorCode::kUnsupported, "codegen/missing",
                StrCat("can not load the code generator: ", dlerror()))
        .Hint("build Lathe where LLVM 19 is installed (Debian: llvm-19-dev)");
  }
  void* entry = dlsym(library, kEntry);
  LATHE_CHECK(entry != nullptr, path, " lacks ", kEntry);
  return *reinterpret_cast<CodeGenerator* (*)()>(entry)();
}

}  // namespace

CodeGenerator& CodeGenerator::Get() {
  static CodeGenerator& generator = Load();
  return generator;
}

}  // namespace lathe::codegen
