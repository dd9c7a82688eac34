#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/tensor.h"

namespace lathe {

// numpy's .npy (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), versions 1
// to 3: bool, i1..i8, u1..u8, f2 f4 f8, c8 c16, U (to string, UTF-8) and S; either byte order;
// Fortran order is turned into row-major. A type that numpy lacks is written and read as a
// structured type with one field of its name: [('bf16', '<u2')]; f8* and f4e2m1 as '|u1', i4 and i2
// as '|i1', u4 and u2 as '|u1', one element per byte. index is written as i8. Strings that are not
// UTF-8 are written as S; as numpy does, reading drops NUL characters at the end of a string.
//
// All readers throw parse/npy (io/... for files) naming `name` and what is wrong; they never read
// beyond `bytes` and allocate at most in proportion to it (or to what deflate can hold).
[[nodiscard]] Tensor ParseNpy(std::span<const std::byte> bytes, const std::string& name);
[[nodiscard]] Tensor ReadNpy(const std::string& path);

[[nodiscard]] std::string SerializeNpy(const Tensor& tensor);
void WriteNpy(const std::string& path, const Tensor& tensor);

// .npz: a zip of .npy members, stored or deflated, zip64 included. In the order of the archive,
// names without ".npy". Duplicate names are an error.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
[[nodiscard]] NamedTensors ParseNpz(std::span<const std::byte> bytes, const std::string& name);
[[nodiscard]] NamedTensors ReadNpz(const std::string& path);

struct NpzOptions {
  bool compress = false;
};
[[nodiscard]] std::string SerializeNpz(const NamedTensors& tensors, const NpzOptions& options = {});
void WriteNpz(const std::string& path, const NamedTensors& tensors, const NpzOptions& options = {});

}  // namespace lathe
