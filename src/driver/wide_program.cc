#include "src/driver/wide_program.h"

#include <utility>

#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "src/transform/widening.h"

namespace lathe {
namespace {

// What shows the program as operations on values.
constexpr const char* kPrepare =
    "random_state,inline,lift_parameters,maximize_value_semantics,infer_shape";

}  // namespace

WideProgram Widened(const Program& program) {
  WideProgram wide{program.Clone(), {}};
  PassManager manager;
  manager.Add(kPrepare);
  manager.Run(wide.program);
  wide.kept = Widen(wide.program, {.wide = ElementType::kF64, .keeps_outputs = false}).kept;
  VerifyOrThrow(wide.program);
  return wide;
}

}  // namespace lathe
