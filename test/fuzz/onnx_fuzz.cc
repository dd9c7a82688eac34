// Any bytes as a model: imported and verified, or refused with an Error.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lathe/dialect/all.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/support/error.h"

namespace {

// Loading the dialects takes longer than importing a small model; a context serves many of them,
// and not for ever, because it keeps every type and attribute that it has seen.
lathe::IrContext& Context() {
  constexpr int kInputsPerContext = 1000;
  static std::unique_ptr<lathe::IrContext> context;
  static int inputs = 0;
  if (inputs++ % kInputsPerContext == 0) {
    context = std::make_unique<lathe::IrContext>();
    lathe::LoadAllDialects(*context);
  }
  return *context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lathe::Buffer::SetAllocationCap(size_t{64} << 20);
  try {
    const auto buffer = lathe::Buffer::Wrap(data, size, nullptr);
    const lathe::Program program =
        lathe::ImportOnnx(Context(), buffer, "fuzz.onnx", "", {.max_inlined_nodes = 1000});
    lathe::Verify(program);
    lathe::SerializeOnnx(program);
  } catch (const lathe::Error& error) {
    if (error.code() == lathe::ErrorCode::kInternal) throw;
  }
  return 0;
}
