#include <algorithm>
#include <cstring>

#include "lathe/runtime/artifacts.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"
#include "src/runtime/in_file.h"
#include "src/runtime/lx_format.h"
#include "src/runtime/plan_check.h"

namespace lathe::runtime {
namespace {

using lx::Kind;

// A file in memory, its sections found and checked.
class File {
 public:
  explicit File(std::shared_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {
    ReadHeader();
    ReadSections();
  }

  std::shared_ptr<const Plan> Read() {
    auto plan = std::make_shared<Plan>();
    const lx::Section& encoded = Checked(Kind::kPlan, "plan");
    lx::DecodePlan(At(encoded), encoded.bytes, *plan, constants_);
    const lx::Section& code = Checked(Kind::kCode, "code");
    plan->code.bytes.assign(reinterpret_cast<const char*>(At(code)), code.bytes);
    for (size_t i = 0; i < constants_.size(); ++i) plan->constants.push_back(ConstantAt(i));
    const bool named = !constants_.empty() && !constants_[0].name.empty();
    for (const lx::Constant& c : constants_) {
      if (named) plan->constant_names.push_back(c.name);
    }
    return plan;
  }

  void VerifyConstants(const Plan& plan) const {
    for (size_t i = 0; i < constants_.size(); ++i) {
      const Tensor& tensor = plan.constants[i];
      if (HashBytes(tensor.raw(), tensor.byte_size()) == constants_[i].checksum) continue;
      throw Error(ErrorCode::kParse, "lx/checksum",
                  StrCat("constant ", i, " (", tensor.TypeString(), ") is damaged"));
    }
  }

 private:
  static constexpr uint32_t kMaxSections = 64;

  const std::byte* At(const lx::Section& section) const { return buffer_->data() + section.offset; }

  void ReadHeader() {
    const uint64_t bytes = buffer_->size();
    const size_t known = std::min<uint64_t>(bytes, sizeof(lx::kMagic));
    if (bytes == 0 || std::memcmp(buffer_->data(), lx::kMagic, known) != 0) {
      throw Error(ErrorCode::kParse, "lx/magic", "this is not a compiled program (.lx)")
          .Hint("`lathe compile MODEL -o FILE.lx` makes one");
    }
    if (bytes < sizeof(header_)) throw Truncated(sizeof(header_));
    std::memcpy(&header_, buffer_->data(), sizeof(header_));
    if (header_.version != kFileVersion) {
      throw Error(ErrorCode::kUnsupported, "lx/version",
                  StrCat("the file has version ", header_.version, "; this library reads version ",
                         kFileVersion))
          .Hint("compile the model with the Lathe that the library belongs to");
    }
    if (header_.file_bytes > bytes) throw Truncated(header_.file_bytes);
    if (header_.file_bytes < bytes) {
      throw Error(ErrorCode::kParse, "lx/size",
                  StrCat("the file has ", bytes, " bytes; it should have ", header_.file_bytes));
    }
  }

  Error Truncated(uint64_t expected) const {
    return {ErrorCode::kParse, "lx/truncated",
            StrCat("the file is cut off: it has ", buffer_->size(), " of ", expected, " bytes")};
  }

  void ReadSections() {
    const uint64_t table = uint64_t{header_.num_sections} * sizeof(lx::Section);
    if (header_.num_sections > kMaxSections || sizeof(header_) + table > buffer_->size()) {
      throw Error(ErrorCode::kParse, "lx/section",
                  StrCat("there is no room for ", header_.num_sections, " sections"));
    }
    sections_.resize(header_.num_sections);
    if (table > 0) std::memcpy(sections_.data(), buffer_->data() + sizeof(header_), table);
    if (lx::HeaderChecksum(header_, sections_) != header_.checksum) throw Damaged("header");
    uint64_t free = sizeof(header_) + table;
    for (const lx::Section& s : sections_) {
      if (s.offset < free || s.offset % lx::kAlignment != 0 || s.offset > buffer_->size() ||
          s.bytes > buffer_->size() - s.offset) {
        throw Error(ErrorCode::kParse, "lx/section",
                    StrCat("a section of ", s.bytes, " bytes at byte ", s.offset,
                           " does not fit into the file of ", buffer_->size()));
      }
      free = s.offset + s.bytes;
    }
  }

  static Error Damaged(const char* what) {
    return {ErrorCode::kParse, "lx/checksum", StrCat("the ", what, " is damaged")};
  }

  const lx::Section& Find(Kind kind, const char* what) const {
    for (const lx::Section& s : sections_) {
      if (s.kind == kind) return s;
    }
    throw Error(ErrorCode::kParse, "lx/section", StrCat("the file has no ", what));
  }

  const lx::Section& Checked(Kind kind, const char* what) const {
    const lx::Section& s = Find(kind, what);
    if (HashBytes(At(s), s.bytes) != s.checksum) throw Damaged(what);
    return s;
  }

  Tensor ConstantAt(size_t i) const {
    const lx::Section& section = Find(Kind::kConstants, "constants");
    const lx::Constant& c = constants_[i];
    if (BitWidth(c.element) == 0) {
      throw Error(ErrorCode::kParse, "lx/constant",
                  StrCat("constant ", i, " has elements of type ", Name(c.element)));
    }
    const auto elements = static_cast<uint64_t>(NumElements(c.shape));
    // An element takes at most 16 bytes; more of them than there are bytes of them do not fit.
    const bool many = elements / 8 > section.bytes;
    const uint64_t bytes = many ? elements : StorageBytes(c.element, elements);
    if (many || c.offset > section.bytes || bytes > section.bytes - c.offset ||
        c.offset % lx::kAlignment != 0) {
      throw Error(ErrorCode::kParse, "lx/constant",
                  StrCat("constant ", i, " : ", Name(c.element), ShapeToString(c.shape),
                         " at byte ", c.offset, " does not fit into ", section.bytes, " bytes"));
    }
    return Tensor::FromBuffer(c.element, c.shape, buffer_, section.offset + c.offset);
  }

  std::shared_ptr<Buffer> buffer_;
  lx::Header header_ = {};
  std::vector<lx::Section> sections_;
  std::vector<lx::Constant> constants_;
};

}  // namespace

std::shared_ptr<const Plan> LoadPlan(std::shared_ptr<Buffer> bytes, const std::string& name) {
  return InFile(name, [&] { return File(std::move(bytes)).Read(); });
}

std::shared_ptr<const Plan> LoadPlan(const std::string& path) {
  if (IsGraph(path)) return LoadPlan(ArtifactFiles{.graph = path});
  return LoadPlan(Buffer::MapFile(path), path);
}

bool IsGraph(const std::string& path) { return FileExtension(path) == ".json"; }

Executor LoadExecutor(std::shared_ptr<Buffer> bytes, const std::string& name,
                      ExecutorOptions options) {
  std::shared_ptr<const Plan> plan = LoadPlan(std::move(bytes), name);
  return InFile(name, [&] { return Executor(std::move(plan), std::move(options)); });
}

Executor LoadExecutor(const std::string& path, ExecutorOptions options) {
  std::shared_ptr<const Plan> plan = LoadPlan(path);
  return InFile(path, [&] { return Executor(std::move(plan), std::move(options)); });
}

void VerifyFile(const std::string& path) {
  if (IsGraph(path)) return VerifyArtifacts({.graph = path});
  InFile(path, [&] {
    File file(Buffer::MapFile(path));
    const auto plan = file.Read();
    CheckPlan(*plan, plan->code.entries.size());
    file.VerifyConstants(*plan);
  });
}

}  // namespace lathe::runtime
