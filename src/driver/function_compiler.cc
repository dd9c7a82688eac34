#include "src/driver/function_compiler.h"

#include <algorithm>
#include <iterator>

#include "lathe/codegen/code_generator.h"
#include "lathe/ir/block.h"
#include "lathe/ir/walk.h"

namespace lathe {

using lower::Lowered;

namespace {

// The strategies of "matmul | loops".
std::vector<std::string> NamesIn(std::string_view strategies) {
  constexpr std::string_view kSeparator = " | ";
  std::vector<std::string> names;
  while (!strategies.empty()) {
    const size_t end = std::min(strategies.find(kSeparator), strategies.size());
    names.emplace_back(strategies.substr(0, end));
    strategies.remove_prefix(std::min(end + kSeparator.size(), strategies.size()));
  }
  return names;
}

}  // namespace

SavedBody::SavedBody(Operation* function) : function_(function) {
  IrMapping mapping;
  copy_ = OwningOp(Clone(function, mapping));
}

void SavedBody::Restore() {
  Region& region = function_->region(0);
  region.Clear();
  region.TakeBody(copy_->region(0));
}

Lowered FunctionCompiler::Lower() {
  Lowered how = lower::LowerFunction(function_, machine_, constant_, options_);
  how.remarks.insert(how.remarks.begin(), remarks_.begin(), remarks_.end());
  return how;
}

Lowered FunctionCompiler::ToLoops() {
  SavedBody saved(function_);
  try {
    return Lower();
  } catch (const std::exception& error) {
    std::optional<lower::Remark> remark = lower::RemarkOn(error, "");
    if (!remark || remark->code == lower::kGivenUp) throw;
    saved.Restore();
    if (options_.strict) lower::ThrowGivenUp(*remark, function_);
    remarks_.push_back(*std::move(remark));
  }
  Lowered how;
  how.why_not = remarks_.back().ToString();
  how.remarks = remarks_;
  return how;
}

std::optional<CompileEngine::Made> FunctionCompiler::ToCode(const codegen::Target& target,
                                                            bool check_accesses, Lowered& how) {
  for (;;) {
    SavedBody saved(function_);
    how = ToLoops();
    if (!how.done) return std::nullopt;
    try {
      const codegen::KernelSource source{kKernelEntry, function_->region(0).front(), how.in_place,
                                         check_accesses};
      return {{how, codegen::CodeGenerator::Get().EmitImage({&source, 1}, target)}};
    } catch (const std::exception& error) {
      std::optional<lower::Remark> remark = lower::RemarkOn(error, how.strategy);
      if (!remark) throw;
      if (options_.strict) lower::ThrowGivenUp(*remark, function_);
      remarks_ = how.remarks;
      remarks_.push_back(*std::move(remark));
      std::ranges::copy(NamesIn(how.strategy), std::back_inserter(options_.without));
      saved.Restore();
    }
  }
}

}  // namespace lathe
