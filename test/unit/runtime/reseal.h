#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "lathe/support/hash.h"
#include "src/runtime/lx_format.h"

namespace lathe::runtime::testing {

/// The bytes of a file with all checksums as they should be, as far as there is a table of
/// sections.
inline std::string Resealed(std::string bytes) {
  lx::Header header;
  if (bytes.size() < sizeof(header)) return bytes;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const uint64_t table = uint64_t{header.num_sections} * sizeof(lx::Section);
  if (header.num_sections > 64 || sizeof(header) + table > bytes.size()) return bytes;
  std::vector<lx::Section> sections(header.num_sections);
  if (table > 0) std::memcpy(sections.data(), bytes.data() + sizeof(header), table);
  for (lx::Section& s : sections) {
    const bool inside = s.offset <= bytes.size() && s.bytes <= bytes.size() - s.offset;
    if (inside) s.checksum = HashBytes(bytes.data() + s.offset, s.bytes);
  }
  header.checksum = lx::HeaderChecksum(header, sections);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (table > 0) std::memcpy(bytes.data() + sizeof(header), sections.data(), table);
  return bytes;
}

}  // namespace lathe::runtime::testing
