#include <atomic>

#include "lathe/runtime/function.h"
#include "lathe/support/companion.h"
#include "lathe/support/error.h"
#include "lathe/support/version.h"

namespace lathe::runtime {
namespace {

constexpr const char* kCompanion = "liblathe_functions.so";

std::atomic<FunctionLibrary>& Library() {
  static std::atomic<FunctionLibrary> library = nullptr;
  return library;
}

Error Missing(const std::string& why) {
  return Error(ErrorCode::kUnsupported, "run/functions",
               StrCat("this program has operations without machine code, which ", kCompanion,
                      " computes"))
      .Note(why)
      .Hint(StrCat("install ", kCompanion, " beside the run time"));
}

FunctionLibrary LoadCompanion() {
  using Entry = FunctionLibrary (*)(const char* version);
  std::string why;
  const auto entry =
      reinterpret_cast<Entry>(FindInCompanion(kCompanion, "lathe_function_library", why));
  if (entry == nullptr) throw Missing(why);
  const FunctionLibrary library = entry(Version().data());
  if (library == nullptr) throw Missing(StrCat("it is not of version ", Version()));
  return library;
}

}  // namespace

void SetFunctionLibrary(FunctionLibrary library) { Library() = library; }

std::vector<Function> MakeFunctions(const std::vector<std::string>& texts) {
  if (texts.empty()) return {};
  if (Library() == nullptr) Library() = LoadCompanion();
  return Library().load()(texts);
}

}  // namespace lathe::runtime
