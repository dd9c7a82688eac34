#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/buffer.h"
#include "lathe/support/file.h"
#include "lathe/support/tensor.h"

namespace lathe {

// The safetensors format (https://github.com/huggingface/safetensors): a length, a JSON header, raw
// little-endian data. Type names: BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 C64 F8_E4M3
// F8_E5M2 F8_E8M0 F4 as upstream; what upstream lacks we write as LATHE_<text name in capitals>:
// LATHE_C128, LATHE_F8E4M3FNUZ, LATHE_F8E5M2FNUZ, LATHE_I4, LATHE_U4, LATHE_I2, LATHE_U2 (packed as
// in Tensor), LATHE_INDEX. Strings cannot be stored.
struct SafeTensors {
  // In the order of their data.
  std::vector<std::pair<std::string, Tensor>> tensors;
  // Free text pairs from "__metadata__", sorted by key.
  std::vector<std::pair<std::string, std::string>> metadata;

  // Null when there is none of that name.
  [[nodiscard]] const Tensor* Find(std::string_view name) const;
};

// Tensors share `buffer`. Throws parse/safetensors: header too large or not JSON, duplicate names,
// unknown types, ranges out of bounds, overlapping, with holes, or not matching the shape.
[[nodiscard]] SafeTensors ParseSafeTensors(const std::shared_ptr<Buffer>& buffer,
                                           const std::string& name);
// Maps the file.
[[nodiscard]] SafeTensors ReadSafeTensors(const std::string& path);

// Data in the order given, each tensor aligned to 64 bytes where the format allows (the first by
// padding the header, the others as sizes fall). The same input gives the same bytes.
// Throws unsupported/safetensors for strings, invalid-argument/safetensors for duplicate names.
[[nodiscard]] std::string SerializeSafeTensors(const SafeTensors& content);
void WriteSafeTensors(const std::string& path, const SafeTensors& content);
// Does not commit.
void WriteSafeTensors(FileWriter& writer, const SafeTensors& content);

}  // namespace lathe
