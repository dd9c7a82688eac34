// .npy and .npz readers: anything may come in; what is accepted is written and read back the same.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lathe/support/error.h"
#include "lathe/support/npy.h"

namespace {

using Bytes = std::span<const std::byte>;

void RoundTrip(const lathe::Tensor& tensor) {
  const std::string file = lathe::SerializeNpy(tensor);
  LATHE_CHECK(lathe::ParseNpy(std::as_bytes(std::span(file.data(), file.size())), "back") ==
              tensor);
}

void TryNpy(Bytes bytes) {
  try {
    RoundTrip(lathe::ParseNpy(bytes, "input"));
  } catch (const lathe::Error& error) {
    if (error.code() == lathe::ErrorCode::kInternal) throw;
  }
}

void TryNpz(Bytes bytes) {
  try {
    for (const auto& [name, tensor] : lathe::ParseNpz(bytes, "input")) RoundTrip(tensor);
  } catch (const lathe::Error& error) {
    if (error.code() == lathe::ErrorCode::kInternal) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  TryNpy(bytes);
  TryNpz(bytes);
  return 0;
}
