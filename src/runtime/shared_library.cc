#include "src/runtime/shared_library.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "lathe/support/divide.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"
#include "lathe/support/text.h"

namespace lathe::runtime {
namespace {

constexpr uint64_t kPage = 4096;
constexpr std::string_view kNoteOwner("Lathe\0\0\0", 8);  // 6 bytes with the zero, padded to 4
constexpr uint32_t kNoteOwnerBytes = 6;
constexpr uint32_t kNoteType = 1;
constexpr std::string_view kInterface = "1";  // how kernels are called: lathe/support/kernel.h

enum SectionIndex : uint16_t { kNull, kNote, kHash, kSymbols, kNames, kText, kDynamic, kTitles };
constexpr size_t kNumSections = 8;
constexpr std::array<std::string_view, kNumSections> kTitleOf = {
    "", ".note.lathe", ".hash", ".dynsym", ".dynstr", ".text", ".dynamic", ".shstrtab"};

std::string Hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

template <class T>
void Put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void PadTo(std::string& out, uint64_t alignment) { out.resize(RoundUp(out.size(), alignment)); }

std::string NoteText(const KernelNames& kernels) {
  std::string text = StrCat("interface ", kInterface, "\ntarget ", kernels.code.target, "\n");
  for (const std::string& feature : kernels.code.features)
    text += StrCat("feature ", feature, "\n");
  return text + StrCat("checksum ", Hex(kernels.Checksum()), "\n");
}

// ---- writing ----

// Of the System V ABI.
uint32_t SymbolHash(std::string_view name) {
  uint32_t h = 0;
  for (const char c : name) {
    h = (h << 4) + static_cast<unsigned char>(c);
    const uint32_t top = h & 0xf0000000U;
    h = (h ^ (top >> 24)) & ~top;
  }
  return h;
}

// File and memory have one layout: what lies at byte n of the file lies n bytes from its beginning
// in memory.
class LibraryWriter {
 public:
  explicit LibraryWriter(const KernelNames& kernels) : kernels_(kernels) {}

  std::string Write() {
    out_.resize(sizeof(Elf64_Ehdr) + kNumSegments * sizeof(Elf64_Phdr));
    WriteNote();
    WriteHash();
    WriteSymbols();
    Section(kText, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, kPage, kernels_.code.bytes);
    WriteDynamic();
    WriteTitles();
    PadTo(out_, sizeof(uint64_t));
    WriteHeaders();
    return std::move(out_);
  }

 private:
  static constexpr uint16_t kNumSegments = 6;

  Elf64_Shdr& Section(SectionIndex index, uint32_t type, uint64_t flags, uint64_t alignment,
                      std::string_view bytes) {
    PadTo(out_, alignment);
    Elf64_Shdr& section = sections_[index];
    section.sh_type = type;
    section.sh_flags = flags;
    section.sh_addr = (flags & SHF_ALLOC) != 0 ? out_.size() : 0;
    section.sh_offset = out_.size();
    section.sh_size = bytes.size();
    section.sh_addralign = alignment;
    out_ += bytes;
    return section;
  }

  void WriteNote() {
    const std::string text = NoteText(kernels_);
    std::string note;
    Put(note, Elf64_Nhdr{kNoteOwnerBytes, static_cast<uint32_t>(text.size()), kNoteType});
    note += kNoteOwner;
    note += text;
    PadTo(note, sizeof(uint32_t));
    Section(kNote, SHT_NOTE, SHF_ALLOC, sizeof(uint32_t), note);
  }

  // A table of buckets, each a chain of symbols; symbol 0 ends them.
  void WriteHash() {
    const auto count = static_cast<uint32_t>(kernels_.names.size());
    const uint32_t num_buckets = std::max(count, 1U);
    std::vector<uint32_t> buckets(num_buckets), chains(count + 1);
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t& bucket = buckets[SymbolHash(kernels_.names[i]) % num_buckets];
      chains[i + 1] = bucket;
      bucket = i + 1;
    }
    std::string table;
    Put(table, num_buckets);
    Put(table, count + 1);
    for (const uint32_t b : buckets) Put(table, b);
    for (const uint32_t c : chains) Put(table, c);
    Section(kHash, SHT_HASH, SHF_ALLOC, sizeof(uint64_t), table).sh_link = kSymbols;
    sections_[kHash].sh_entsize = sizeof(uint32_t);
  }

  // Where a kernel ends: where the next one begins.
  uint64_t EndOf(uint64_t entry) const {
    const auto next = std::upper_bound(sorted_.begin(), sorted_.end(), entry);
    return next == sorted_.end() ? kernels_.code.bytes.size() : *next;
  }

  void WriteSymbols() {
    sorted_ = kernels_.code.entries;
    std::sort(sorted_.begin(), sorted_.end());
    std::string names(1, '\0');
    std::vector<Elf64_Sym> symbols(1);
    for (size_t i = 0; i < kernels_.names.size(); ++i) {
      Elf64_Sym symbol = {};
      symbol.st_name = static_cast<uint32_t>(names.size());
      symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
      symbol.st_shndx = kText;
      symbol.st_value = kernels_.code.entries[i];
      symbol.st_size = EndOf(symbol.st_value) - symbol.st_value;
      symbols.push_back(symbol);
      names += kernels_.names[i];
      names += '\0';
    }
    PadTo(out_, sizeof(uint64_t));
    const uint64_t before_text = out_.size() + symbols.size() * sizeof(Elf64_Sym) + names.size();
    const uint64_t text = RoundUp(before_text, kPage);
    std::string table;
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (i > 0) symbols[i].st_value += text;
      Put(table, symbols[i]);
    }
    Elf64_Shdr& section = Section(kSymbols, SHT_DYNSYM, SHF_ALLOC, sizeof(uint64_t), table);
    section.sh_link = kNames;
    section.sh_info = 1;  // the first symbol that is not local
    section.sh_entsize = sizeof(Elf64_Sym);
    Section(kNames, SHT_STRTAB, SHF_ALLOC, 1, names);
    end_of_tables_ = out_.size();
  }

  // The dynamic linker of older systems writes here.
  void WriteDynamic() {
    const std::array<Elf64_Dyn, 6> entries = {{{DT_HASH, {sections_[kHash].sh_addr}},
                                               {DT_STRTAB, {sections_[kNames].sh_addr}},
                                               {DT_SYMTAB, {sections_[kSymbols].sh_addr}},
                                               {DT_STRSZ, {sections_[kNames].sh_size}},
                                               {DT_SYMENT, {sizeof(Elf64_Sym)}},
                                               {DT_NULL, {0}}}};
    std::string table;
    for (const Elf64_Dyn& entry : entries) Put(table, entry);
    Elf64_Shdr& section = Section(kDynamic, SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, kPage, table);
    section.sh_link = kNames;
    section.sh_entsize = sizeof(Elf64_Dyn);
  }

  void WriteTitles() {
    std::string titles;
    for (size_t i = 0; i < kNumSections; ++i) {
      sections_[i].sh_name = static_cast<uint32_t>(titles.size());
      titles += kTitleOf[i];
      titles += '\0';
    }
    Section(kTitles, SHT_STRTAB, 0, 1, titles);
  }

  static Elf64_Phdr Segment(uint32_t type, uint32_t flags, uint64_t begin, uint64_t bytes,
                            uint64_t alignment) {
    return {type, flags, begin, begin, begin, bytes, bytes, alignment};
  }
  static Elf64_Phdr SegmentOf(uint32_t type, uint32_t flags, const Elf64_Shdr& section,
                              uint64_t alignment) {
    return Segment(type, flags, section.sh_offset, section.sh_size, alignment);
  }

  void WriteHeaders() {
    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_shoff = out_.size();
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = kNumSegments;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = kNumSections;
    header.e_shstrndx = kTitles;
    const Elf64_Shdr& text = sections_[kText];
    const Elf64_Shdr& dynamic = sections_[kDynamic];
    std::array<Elf64_Phdr, kNumSegments> segments = {
        Segment(PT_LOAD, PF_R, 0, end_of_tables_, kPage),
        SegmentOf(PT_LOAD, PF_R | PF_X, text, kPage),
        SegmentOf(PT_LOAD, PF_R | PF_W, dynamic, kPage),
        SegmentOf(PT_DYNAMIC, PF_R | PF_W, dynamic, sizeof(uint64_t)),
        SegmentOf(PT_NOTE, PF_R, sections_[kNote], sizeof(uint32_t)),
        Segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 16)};
    if (text.sh_size == 0) segments[1] = Segment(PT_NULL, 0, 0, 0, 0);
    std::memcpy(out_.data(), &header, sizeof(header));
    std::memcpy(out_.data() + sizeof(header), segments.data(), sizeof(segments));
    for (const Elf64_Shdr& section : sections_) Put(out_, section);
  }

  const KernelNames& kernels_;
  std::string out_;
  std::array<Elf64_Shdr, kNumSections> sections_ = {};
  std::vector<uint64_t> sorted_;
  uint64_t end_of_tables_ = 0;
};

// ---- reading ----

class LibraryReader {
 public:
  explicit LibraryReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  KernelNames Read() {
    ReadHeader();
    const Elf64_Shdr text = Find(kText);
    kernels_.code.bytes = TextOf(text);
    ReadNote();
    ReadSymbols(text);
    if (Hex(kernels_.Checksum()) != checksum_) {
      throw Fault("its checksum is wrong: it is damaged, or was changed");
    }
    return std::move(kernels_);
  }

 private:
  static Error Fault(const std::string& what) {
    return {ErrorCode::kParse, "artifact/library", what};
  }

  template <class T>
  T At(uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) throw Fault("it is cut off");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  void ReadHeader() {
    if (bytes_.size() < SELFMAG || std::memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0) {
      throw Fault("this is not a shared library");
    }
    header_ = At<Elf64_Ehdr>(0);
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
        header_.e_machine != EM_X86_64 || header_.e_type != ET_DYN) {
      throw Fault("this is not a shared library for x86-64");
    }
    if (header_.e_shentsize != sizeof(Elf64_Shdr)) throw Fault("its sections cannot be read");
  }

  // By number; the offset of the table may be any.
  Elf64_Shdr SectionAt(uint64_t index) const {
    if (header_.e_shoff > bytes_.size()) throw Fault("it is cut off");
    return At<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr));
  }

  std::string TextOf(const Elf64_Shdr& section) const {
    const uint64_t begin = section.sh_offset;
    if (section.sh_type == SHT_NOBITS || begin > bytes_.size() ||
        section.sh_size > bytes_.size() - begin) {
      throw Fault("a section does not fit into it");
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, section.sh_size};
  }

  // Up to the next zero.
  static std::string_view NameAt(const std::string& names, uint64_t at) {
    const size_t end = at < names.size() ? names.find('\0', at) : std::string::npos;
    if (end == std::string::npos) throw Fault("a name in it has no end");
    return std::string_view(names).substr(at, end - at);
  }

  uint64_t IndexOf(SectionIndex wanted) const {
    const std::string titles = TextOf(SectionAt(header_.e_shstrndx));
    for (uint64_t i = 1; i < header_.e_shnum; ++i) {
      if (NameAt(titles, SectionAt(i).sh_name) == kTitleOf[wanted]) return i;
    }
    throw Fault(StrCat("it has no section '", kTitleOf[wanted], "'"))
        .Hint("only libraries that `lathe compile -o FILE.json` wrote have what a graph needs");
  }
  Elf64_Shdr Find(SectionIndex wanted) const { return SectionAt(IndexOf(wanted)); }

  void ReadNote() {
    const std::string note = TextOf(Find(kNote));
    const size_t head = sizeof(Elf64_Nhdr) + kNoteOwner.size();
    Elf64_Nhdr header = {};
    if (note.size() >= head) std::memcpy(&header, note.data(), sizeof(header));
    if (note.size() < head || header.n_namesz != kNoteOwnerBytes || header.n_type != kNoteType ||
        note.substr(sizeof(header), kNoteOwner.size()) != kNoteOwner ||
        header.n_descsz > note.size() - head) {
      throw Fault("its note is damaged");
    }
    const std::string text = note.substr(head, header.n_descsz);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      ReadNoteLine(std::string_view(text).substr(at, end - at));
      at = end + 1;
    }
  }

  void ReadNoteLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) throw Fault("its note is damaged");
    const std::string_view key = line.substr(0, space);
    const std::string value(line.substr(space + 1));
    if (key == "interface" && value != kInterface) {
      throw Error(
          ErrorCode::kUnsupported, "artifact/library",
          StrCat("its kernels are called in way ", value, "; this run time knows way ", kInterface))
          .Hint("compile the model with the Lathe that the run time belongs to");
    }
    if (key == "target") kernels_.code.target = value;
    if (key == "feature") kernels_.code.features.push_back(value);
    if (key == "checksum") checksum_ = value;
  }

  void ReadSymbols(const Elf64_Shdr& text) {
    const uint64_t index = IndexOf(kText);
    const std::string table = TextOf(Find(kSymbols));
    const std::string names = TextOf(Find(kNames));
    size_t named = 0;
    for (size_t at = sizeof(Elf64_Sym); at + sizeof(Elf64_Sym) <= table.size();
         at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, table.data() + at, sizeof(symbol));
      if (symbol.st_shndx != index) continue;
      const std::string name(NameAt(names, symbol.st_name));
      named += name.size() + 1;
      if (named > names.size()) throw Fault("its names overlap");  // in memory they would not
      if (symbol.st_value < text.sh_addr || symbol.st_value - text.sh_addr >= text.sh_size) {
        throw Fault(StrCat("kernel '", name, "' lies outside of the code"));
      }
      kernels_.code.entries.push_back(symbol.st_value - text.sh_addr);
      kernels_.names.push_back(name);
    }
  }

  const std::span<const std::byte> bytes_;
  Elf64_Ehdr header_ = {};
  std::string checksum_;
  KernelNames kernels_;
};

}  // namespace

uint64_t KernelNames::Checksum() const {
  uint64_t hash = HashString(code.bytes, HashString(code.target));
  for (const std::string& feature : code.features) hash = HashString(feature, hash);
  for (const uint64_t entry : code.entries) hash = HashCombine(hash, entry);
  for (const std::string& name : names) hash = HashString(name, hash);
  return hash;
}

std::string WriteSharedLibrary(const KernelNames& kernels) {
  LATHE_CHECK(kernels.names.size() == kernels.code.entries.size());
  return LibraryWriter(kernels).Write();
}

KernelNames ReadSharedLibrary(std::span<const std::byte> bytes) {
  return LibraryReader(bytes).Read();
}

}  // namespace lathe::runtime
