// Any bytes are a compiled program or refused, also when their checksums are right.
#include <cstdio>
#include <cstdlib>

#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "test/unit/runtime/reseal.h"

namespace {

using lathe::runtime::Executor;

void Check(const std::string& bytes) {
  auto buffer = lathe::Buffer::Allocate(bytes.size());
  std::memcpy(buffer->mutable_data(), bytes.data(), bytes.size());
  try {
    const auto plan = lathe::runtime::LoadPlan(buffer, "fuzz.lx");
    const auto nothing = [](const lathe::KernelBuffer*, lathe::KernelTeam*) {};
    Executor(std::vector<Executor::Kernel>(plan->code.entries.size(), nothing), plan,
             {.threads = 1});
  } catch (const lathe::Error& error) {
    if (error.code() != lathe::ErrorCode::kInternal) return;
    std::fputs(error.Render().c_str(), stderr);
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const lathe::AllocationLimit limit(size_t{1} << 26);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Check(bytes);
  Check(lathe::runtime::testing::Resealed(bytes));
  return 0;
}
