#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe::runtime {

/// Kernels under names that C can use: `names` are parallel to the entries of `code`.
struct KernelNames {
  PlanCode code;
  std::vector<std::string> names;

  /// Which kernels these are: of code, names, entries, target and features.
  uint64_t Checksum() const;
};

/// The bytes of a shared library for x86-64 (ELF): the code in one executable section, a dynamic
/// symbol per kernel, and a note (`.note.lathe`) that says what the code is for and what its
/// checksum is. It needs no other library and holds nothing that is written, so no linker is needed
/// to make it; dlopen and the usual tools take it.
std::string WriteSharedLibrary(const KernelNames& kernels);

/// The same back. Nothing of the library is run. Errors: artifact/library.
KernelNames ReadSharedLibrary(std::span<const std::byte> bytes);

}  // namespace lathe::runtime
