// Any bytes are read or refused; a program that is right prints and reads back as the same one.
#include <cstdio>
#include <cstdlib>

#include "lathe/dialect/all.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"

namespace {

[[noreturn]] void Fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

void Check(lathe::IrContext& context, std::string_view text) {
  const lathe::Program program = lathe::ParseProgram(context, text, {.file_name = "fuzz"});
  if (!lathe::Verify(program).empty()) return;
  const std::string printed = lathe::Print(program);
  std::string why;
  try {
    const lathe::Program again =
        lathe::ParseProgram(context, printed, {.file_locations = false, .max_type_nesting = 400});
    if (!lathe::StructurallyEqual(program.module(), again.module(), true, &why)) {
      Fail(why.c_str(), printed);
    }
    if (lathe::Print(again) != printed) Fail("two prints differ", printed);
  } catch (const lathe::Error& error) {
    Fail(error.Render().c_str(), printed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lathe::IrContext context;
  lathe::LoadAllDialects(context);
  // Unknown operations are made up for half of the texts.
  context.allow_unregistered_ops(size % 2 == 1);
  try {
    Check(context, {reinterpret_cast<const char*>(data), size});
  } catch (const lathe::Error& error) {
    if (error.code() == lathe::ErrorCode::kInternal) Fail("internal error", error.Render());
  }
  return 0;
}
