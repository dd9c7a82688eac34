#include "lathe/lower/external.h"

#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/support/companion.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

// A compiler that comes with Lathe, if what it needs was there when Lathe was built.
struct Companion {
  const char* name;
  const char* library;
  const char* way_out;
};
constexpr Companion kCompanions[] = {
    {"onednn", "liblathe_onednn.so",
     "build Lathe where oneDNN 3 is installed: scripts/install.sh test"},
};

// Why each of them could not be loaded; empty if it was.
const std::vector<std::string>& LoadCompanions(ExternalCompilers& compilers) {
  static const std::vector<std::string> reasons = [&] {
    std::vector<std::string> all;
    const std::vector<std::string> taken = compilers.names();
    for (const Companion& c : kCompanions) {
      if (std::ranges::find(taken, c.name) != taken.end()) {
        all.emplace_back("another compiler has its name");
        continue;
      }
      void* entry = FindInCompanion(c.library, "LatheExternalCompiler", all.emplace_back());
      if (entry != nullptr) reinterpret_cast<ExternalCompilerEntry>(entry)(compilers);
    }
    return all;
  }();
  return reasons;
}

}  // namespace

ExternalCompilers& ExternalCompilers::Global() {
  static ExternalCompilers compilers;
  return compilers;
}

void ExternalCompilers::Register(ExternalCompiler compiler) {
  const std::string name = compiler.name;
  const std::lock_guard lock(mutex_);
  if (!compilers_.emplace(name, std::move(compiler)).second) {
    throw Error(ErrorCode::kInvalidArgument, "lower/duplicate-compiler",
                StrCat("there are two external compilers '", name, "'"));
  }
}

const ExternalCompiler* ExternalCompilers::Registered(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto at = compilers_.find(name);
  return at == compilers_.end() ? nullptr : &at->second;
}

const ExternalCompiler& ExternalCompilers::Find(std::string_view name) const {
  if (const ExternalCompiler* found = Registered(name)) return *found;
  std::vector<std::string> reasons;
  if (this == &Global()) reasons = LoadCompanions(Global());
  if (const ExternalCompiler* found = Registered(name)) return *found;
  std::string known;
  for (const std::string& other : names()) known += StrCat(known.empty() ? "" : ", ", other);
  Error error(ErrorCode::kNotFound, "lower/no-compiler",
              StrCat("there is no external compiler '", name, "'"));
  error.Note(known.empty() ? "none is registered" : StrCat("registered: ", known));
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (name == kCompanions[i].name) throw error.Note(reasons[i]).Hint(kCompanions[i].way_out);
  }
  if (const std::string hint = DidYouMean(name, names()); !hint.empty()) error.Hint(hint);
  throw std::move(error);
}

std::vector<std::string> ExternalCompilers::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> result;
  for (const auto& [name, compiler] : compilers_) result.push_back(name);
  return result;
}

std::vector<ExternalModule> CompileExternalFunctions(const Program& program,
                                                     const ExternalCompilers& compilers) {
  const FunctionTable functions(program);
  std::vector<ExternalModule> modules;
  for (const Operation* function : functions.functions()) {
    const std::string_view compiler = CompilerOf(function);
    if (compiler.empty() || compiler == kCollectives) continue;
    const ExternalCompiler& by = compilers.Find(compiler);
    modules.push_back({FunctionTable::NameOf(function), by.name, by.compile(function, program)});
  }
  return modules;
}

}  // namespace lathe
