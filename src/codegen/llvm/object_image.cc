#include "src/codegen/llvm/object_image.h"

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/Endian.h>

#include <map>

#include "lathe/support/divide.h"
#include "lathe/support/error.h"

namespace lathe::codegen {
namespace {

using llvm::object::ELF64LEObjectFile;
using llvm::object::ELFSectionRef;
using llvm::object::ELFSymbolRef;
using llvm::object::RelocationRef;
using llvm::object::SectionRef;

[[noreturn]] void Fail(const std::string& message) {
  throw Error(ErrorCode::kInternal, "codegen/image", message);
}

template <class T>
T Take(llvm::Expected<T> value) {
  if (!value) Fail(llvm::toString(value.takeError()));
  return std::move(*value);
}

class Layout {
 public:
  explicit Layout(const ELF64LEObjectFile& object) : object_(object) {}

  CodeImage Make() {
    if (object_.getArch() != llvm::Triple::x86_64) {
      throw Error(ErrorCode::kUnsupported, "codegen/image",
                  "images of machine code are made for x86-64 only");
    }
    for (const SectionRef& section : object_.sections()) Place(section);
    for (const SectionRef& section : object_.sections()) Resolve(section);
    for (const ELFSymbolRef symbol : object_.symbols()) AddEntry(symbol);
    return std::move(image_);
  }

 private:
  // Unwind tables say how exceptions pass through, which they never do.
  static bool IsLoaded(const ELFSectionRef& section) {
    return (section.getFlags() & llvm::ELF::SHF_ALLOC) != 0 && section.getSize() > 0 &&
           section.getType() != llvm::ELF::SHT_X86_64_UNWIND &&
           Take(section.getName()) != ".eh_frame" && section.getType() != llvm::ELF::SHT_NOTE;
  }

  void Place(const ELFSectionRef section) {
    if (!IsLoaded(section)) return;
    const std::string name = Take(section.getName()).str();
    if ((section.getFlags() & llvm::ELF::SHF_WRITE) != 0) Fail("a writable section " + name);
    const uint64_t align = section.getAlignment().value();
    if (align > CodeImage::kAlignment) Fail("a section with large alignment: " + name);
    image_.bytes.resize(RoundUp(image_.bytes.size(), align));
    places_[section.getIndex()] = image_.bytes.size();
    image_.bytes += Take(section.getContents()).str();
  }

  // Where a symbol lies in the image.
  uint64_t PlaceOf(const ELFSymbolRef& symbol) {
    const auto section = Take(symbol.getSection());
    if (section == object_.section_end()) Fail("code needs " + Take(symbol.getName()).str());
    const auto place = places_.find(section->getIndex());
    if (place == places_.end()) Fail("code needs a section " + Take(section->getName()).str());
    return place->second + Take(symbol.getValue());
  }

  void Resolve(const SectionRef& relocations) {
    const auto target = Take(relocations.getRelocatedSection());
    if (target == object_.section_end()) return;
    const auto place = places_.find(target->getIndex());
    if (place == places_.end()) return;
    for (const RelocationRef& relocation : relocations.relocations()) {
      const uint64_t type = relocation.getType();
      if (type != llvm::ELF::R_X86_64_PC32 && type != llvm::ELF::R_X86_64_PLT32) {
        llvm::SmallString<32> name;
        relocation.getTypeName(name);
        Fail("code needs a relocation " + name.str().str());
      }
      const uint64_t at = place->second + relocation.getOffset();
      const int64_t addend = Take(llvm::object::ELFRelocationRef(relocation).getAddend());
      const auto value = static_cast<int64_t>(PlaceOf(*relocation.getSymbol())) + addend -
                         static_cast<int64_t>(at);
      LATHE_CHECK(at + 4 <= image_.bytes.size() && value == static_cast<int32_t>(value),
                  "a relocation out of range");
      llvm::support::endian::write32le(image_.bytes.data() + at, static_cast<uint32_t>(value));
    }
  }

  void AddEntry(const ELFSymbolRef& symbol) {
    if (Take(symbol.getType()) != llvm::object::SymbolRef::ST_Function) return;
    if (symbol.getBinding() != llvm::ELF::STB_GLOBAL) return;
    image_.entries.push_back({Take(symbol.getName()).str(), PlaceOf(symbol), {}});
  }

  const ELF64LEObjectFile& object_;
  CodeImage image_;
  std::map<uint64_t, uint64_t> places_;  // of loaded sections, by index
};

}  // namespace

CodeImage ImageOfObject(const std::string& object) {
  const llvm::MemoryBufferRef buffer(object, "kernels");
  const auto file = Take(llvm::object::ObjectFile::createELFObjectFile(buffer));
  const auto* elf = llvm::dyn_cast<ELF64LEObjectFile>(file.get());
  if (elf == nullptr) Fail("an object file of another kind");
  return Layout(*elf).Make();
}

}  // namespace lathe::codegen
