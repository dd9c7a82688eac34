#include "lathe/lower/external.h"

#include "lathe/ir/context.h"
#include "lathe/ir/functions.h"
#include "lathe/support/error.h"

namespace lathe {

ExternalCompilers& ExternalCompilers::Global() {
  static ExternalCompilers compilers;
  return compilers;
}

void ExternalCompilers::Register(ExternalCompiler compiler) {
  const std::string name = compiler.name;
  if (!compilers_.emplace(name, std::move(compiler)).second) {
    throw Error(ErrorCode::kInvalidArgument, "lower/duplicate-compiler",
                StrCat("there are two external compilers '", name, "'"));
  }
}

const ExternalCompiler& ExternalCompilers::Find(std::string_view name) const {
  const auto at = compilers_.find(name);
  if (at != compilers_.end()) return at->second;
  std::string known;
  for (const std::string& other : names()) known += StrCat(known.empty() ? "" : ", ", other);
  Error error(ErrorCode::kNotFound, "lower/no-compiler",
              StrCat("there is no external compiler '", name, "'"));
  error.Note(known.empty() ? "none is registered" : StrCat("registered: ", known));
  if (const std::string hint = DidYouMean(name, names()); !hint.empty()) error.Hint(hint);
  throw std::move(error);
}

std::vector<std::string> ExternalCompilers::names() const {
  std::vector<std::string> result;
  for (const auto& [name, compiler] : compilers_) result.push_back(name);
  return result;
}

std::vector<ExternalModule> CompileExternalFunctions(const Program& program,
                                                     const ExternalCompilers& compilers) {
  const FunctionTable functions(program);
  std::vector<ExternalModule> modules;
  for (const Operation* function : functions.functions()) {
    const auto compiler = function->attribute(kCompilerAttr).dyn_cast<StrAttribute>();
    if (!compiler) continue;
    const ExternalCompiler& by = compilers.Find(compiler.value());
    modules.push_back({FunctionTable::NameOf(function), by.name, by.compile(function, program)});
  }
  return modules;
}

}  // namespace lathe
