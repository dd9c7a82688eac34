// The safetensors reader: anything may come in; what is accepted is written and read back the same.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "lathe/support/error.h"
#include "lathe/support/safetensors.h"

namespace {

lathe::SafeTensors Parse(const void* data, size_t size) {
  auto buffer = lathe::Buffer::Allocate(size);
  if (size > 0) std::memcpy(buffer->mutable_data(), data, size);
  return lathe::ParseSafeTensors(buffer, "input");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const lathe::SafeTensors content = Parse(data, size);
    const std::string file = lathe::SerializeSafeTensors(content);
    const lathe::SafeTensors back = Parse(file.data(), file.size());
    LATHE_CHECK(back.metadata == content.metadata);
    LATHE_CHECK(back.tensors.size() == content.tensors.size());
    for (const auto& [name, tensor] : content.tensors) {
      const lathe::Tensor* found = back.Find(name);
      LATHE_CHECK(found != nullptr && *found == tensor);
    }
  } catch (const lathe::Error& error) {
    if (error.code() == lathe::ErrorCode::kInternal) throw;
  }
  return 0;
}
