#include "lathe/runtime/function.h"
#include "src/functions/program_function.h"

namespace lathe {
namespace {

// Programs that this library loads need no other one for their functions.
[[maybe_unused]] const bool kIsSet = (runtime::SetFunctionLibrary(&FunctionsFromText), true);

}  // namespace
}  // namespace lathe
