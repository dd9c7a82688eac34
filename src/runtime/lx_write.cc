#include <algorithm>
#include <cstring>
#include <map>

#include "lathe/runtime/artifacts.h"
#include "lathe/support/divide.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"
#include "src/runtime/lx_format.h"

namespace lathe::runtime {
namespace {

using lx::Kind;

// Which constants are written, where; those that share their bytes are written once.
struct Layout {
  std::vector<lx::Constant> constants;
  std::vector<const Tensor*> written;
  uint64_t bytes = 0;
};

Layout LayOut(const Plan& plan) {
  Layout layout;
  std::map<std::pair<const std::byte*, size_t>, size_t> known;  // looked up only
  for (const Tensor& tensor : plan.constants) {
    const size_t index = layout.constants.size();
    const auto [found, fresh] = known.emplace(std::pair(tensor.raw(), tensor.byte_size()), index);
    lx::Constant constant{"", tensor.element_type(), tensor.shape(), layout.bytes, 0};
    if (index < plan.constant_names.size()) constant.name = plan.constant_names[index];
    if (fresh) {
      constant.checksum = HashBytes(tensor.raw(), tensor.byte_size());
      layout.bytes = RoundUp(layout.bytes + tensor.byte_size(), lx::kAlignment);
      layout.written.push_back(&tensor);
    } else {
      constant.offset = layout.constants[found->second].offset;
      constant.checksum = layout.constants[found->second].checksum;
    }
    layout.constants.push_back(std::move(constant));
  }
  return layout;
}

// Writes, and counts, so that what follows begins where it was said to.
class Sink {
 public:
  explicit Sink(const std::string& path) : file_(path) {}
  void Write(const void* data, uint64_t bytes) {
    file_.Write(std::string_view(static_cast<const char*>(data), bytes));
    at_ += bytes;
  }
  void PadTo(uint64_t offset) {
    static constexpr char kZeros[lx::kPage] = {};
    LATHE_CHECK(offset >= at_ && offset - at_ <= sizeof(kZeros));
    Write(kZeros, offset - at_);
  }
  void Commit() { file_.Commit(); }

 private:
  FileWriter file_;
  uint64_t at_ = 0;
};

}  // namespace

uint64_t lx::HeaderChecksum(Header header, const std::vector<Section>& sections) {
  header.checksum = 0;
  const uint64_t head = HashBytes(&header, sizeof(header));
  return HashBytes(sections.data(), sections.size() * sizeof(Section), head);
}

void SavePlan(const Plan& plan, const std::string& path) {
  if (IsGraph(path)) return SaveArtifacts(MakeArtifacts(plan), {.graph = path});
  const Layout layout = LayOut(plan);
  const std::string encoded = lx::EncodePlan(plan, layout.constants);
  const std::string& code = plan.code.bytes;
  std::vector<lx::Section> sections;
  uint64_t at = sizeof(lx::Header) + 3 * sizeof(lx::Section);
  const auto add = [&](Kind kind, uint64_t bytes, uint64_t alignment, uint64_t checksum) {
    at = RoundUp(at, alignment);
    sections.push_back({kind, 0, at, bytes, checksum});
    at += bytes;
  };
  add(Kind::kPlan, encoded.size(), lx::kAlignment, HashString(encoded));
  add(Kind::kCode, code.size(), lx::kAlignment, HashString(code));
  add(Kind::kConstants, layout.bytes, lx::kPage, 0);
  lx::Header header = {};
  std::memcpy(header.magic, lx::kMagic, sizeof(header.magic));
  header.version = kFileVersion;
  header.num_sections = static_cast<uint32_t>(sections.size());
  header.file_bytes = at;
  header.checksum = lx::HeaderChecksum(header, sections);

  Sink sink(path);
  sink.Write(&header, sizeof(header));
  sink.Write(sections.data(), sections.size() * sizeof(lx::Section));
  sink.PadTo(sections[0].offset);
  sink.Write(encoded.data(), encoded.size());
  sink.PadTo(sections[1].offset);
  sink.Write(code.data(), code.size());
  sink.PadTo(sections[2].offset);
  uint64_t written = 0;
  for (const Tensor* tensor : layout.written) {
    sink.Write(tensor->raw(), tensor->byte_size());
    written += tensor->byte_size();
    sink.PadTo(sections[2].offset + RoundUp(written, lx::kAlignment));
    written = RoundUp(written, lx::kAlignment);
  }
  sink.Commit();
}

}  // namespace lathe::runtime
