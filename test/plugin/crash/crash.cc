// Operations that go wrong when they run, as a bug of an operation does.
#include <cstdlib>

#include "lathe/ir/dialect.h"
#include "lathe/ir/interfaces.h"
#include "lathe/ir/op.h"
#include "lathe/ir/traits.h"
#include "lathe/plugin.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

/// Ends the process by a signal.
class AbortOp : public Op<AbortOp, HasValueSemantics, EvalInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "crash.abort";
  static const OpDef* Def() { return nullptr; }
  static void Eval(EvalContext& /*c*/) { std::abort(); }
};

/// Runs into an assertion of the library.
class AssertOp : public Op<AssertOp, HasValueSemantics, EvalInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "crash.assert";
  static const OpDef* Def() { return nullptr; }
  static void Eval(EvalContext& c) { LATHE_CHECK(!c.HasInput(0), "there is never an input"); }
};

/// Says that its input is wrong, which is not a crash.
class RefuseOp : public Op<RefuseOp, HasValueSemantics, EvalInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "crash.refuse";
  static const OpDef* Def() { return nullptr; }
  static void Eval(EvalContext& c) { c.Fail("crash/input", "this input is wrong"); }
};

class CrashDialect : public Dialect {
 public:
  static constexpr const char* kName = "crash";
  explicit CrashDialect(IrContext& c) : Dialect(c, kName) {
    RegisterOps<AbortOp, AssertOp, RefuseOp>();
  }
};

}  // namespace
}  // namespace lathe

LATHE_PLUGIN(context) { context.LoadDialect<lathe::CrashDialect>(); }
