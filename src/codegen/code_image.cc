#include "lathe/codegen/code_image.h"

#include "lathe/support/divide.h"
#include "lathe/support/error.h"

namespace lathe::codegen {

const CodeImage::Entry& CodeImage::Find(std::string_view name) const {
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry;
  }
  LATHE_CHECK(false, "no kernel ", name);
  return entries.front();
}

void CodeImage::Append(const CodeImage& other) {
  bytes.resize(RoundUp(bytes.size(), kAlignment));
  for (const Entry& entry : other.entries) {
    entries.push_back(entry);
    entries.back().offset += bytes.size();
  }
  bytes += other.bytes;
}

}  // namespace lathe::codegen
