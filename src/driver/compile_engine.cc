#include "lathe/driver/compile_engine.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "lathe/ir/block.h"
#include "lathe/ir/structure.h"
#include "lathe/lower/strategy.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/version.h"

namespace lathe {
namespace {

using codegen::CodeImage;

// When and how large a library was built; compiling it again makes another one.
std::string StampOf(const std::filesystem::path& library) {
  struct stat status = {};
  if (stat(library.c_str(), &status) != 0) return "-";
  return StrCat(static_cast<int64_t>(status.st_size), "-",
                static_cast<int64_t>(status.st_mtim.tv_sec), ".",
                static_cast<int64_t>(status.st_mtim.tv_nsec));
}

// Of the code that compiles: this library, which writes loops, and the code generator beside it.
std::string VersionOfCompiler() {
  Dl_info info;
  LATHE_CHECK(dladdr(reinterpret_cast<const void*>(&VersionOfCompiler), &info) != 0,
              "no own library");
  const std::filesystem::path own(info.dli_fname);
  return StrCat(Version(), " ", StampOf(own), " ",
                StampOf(own.parent_path() / "liblathe_codegen.so"));
}

// ---- a kernel as bytes ----

class Writer {
 public:
  void Number(uint64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Text(std::string_view text) {
    Number(text.size());
    bytes_.append(text);
  }
  void Numbers(std::span<const int64_t> values) {
    Number(values.size());
    for (const int64_t v : values) Number(static_cast<uint64_t>(v));
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a Writer wrote; after the end everything is zero or empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool failed() const { return failed_; }
  bool done() const { return !failed_ && rest_.empty(); }

  uint64_t Number() {
    uint64_t value = 0;
    const std::string_view bytes = Bytes(sizeof value);
    if (!failed_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string Text() { return std::string(Bytes(Number())); }
  std::vector<int64_t> Numbers() {
    std::vector<int64_t> values;
    for (uint64_t n = Number(); n > 0 && !failed_; --n) {
      values.push_back(static_cast<int64_t>(Number()));
    }
    return values;
  }

 private:
  std::string_view Bytes(uint64_t count) {
    failed_ = failed_ || count > rest_.size();
    if (failed_) return {};
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  std::string_view rest_;
  bool failed_ = false;
};

void WriteOrder(const lower::PackedLayout& layout, Writer& w) {
  w.Numbers(layout.padded);
  w.Numbers(layout.split);
  w.Numbers(layout.order);
  w.Number(layout.sums.size());
  for (const double factor : layout.sums) w.Number(std::bit_cast<uint64_t>(factor));
  w.Number(static_cast<uint64_t>(layout.summed));
  w.Number(static_cast<uint64_t>(layout.element));
}

lower::PackedLayout ReadOrder(Reader& r) {
  lower::PackedLayout layout;
  layout.padded = r.Numbers();
  layout.split = r.Numbers();
  layout.order = r.Numbers();
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    layout.sums.push_back(std::bit_cast<double>(r.Number()));
  }
  layout.summed = static_cast<int64_t>(r.Number());
  layout.element = static_cast<ElementType>(r.Number());
  return layout;
}

void WriteLayout(const lower::PackedLayout& layout, Writer& w) {
  w.Number(layout.argument);
  WriteOrder(layout, w);
  w.Number(layout.parts.size());
  for (const lower::PackedLayout& part : layout.parts) WriteOrder(part, w);
}

lower::PackedLayout ReadLayout(Reader& r) {
  const uint64_t argument = r.Number();
  lower::PackedLayout layout = ReadOrder(r);
  layout.argument = argument;
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    layout.parts.push_back(ReadOrder(r));
    layout.parts.back().argument = argument;
  }
  return layout;
}

std::string ToBytes(const CompileEngine::Made& kernel) {
  Writer w;
  const lower::Lowered& how = kernel.how;
  for (const std::string* text :
       {&how.strategy, &how.implementation, &how.why_not, &how.candidates, &kernel.image.bytes}) {
    w.Text(*text);
  }
  w.Number(how.packed.size());
  for (const lower::PackedLayout& layout : how.packed) WriteLayout(layout, w);
  w.Number(how.in_place.size());
  for (const auto& [argument, result] : how.in_place) {
    w.Number(argument);
    w.Number(result);
  }
  w.Number(how.own_sizes.size());
  for (const auto& [name, dim] : how.own_sizes) {
    w.Text(name);
    w.Text(dim.ToString());
  }
  w.Number(how.remarks.size());
  for (const lower::Remark& remark : how.remarks) {
    for (const std::string* text : {&remark.code, &remark.strategy, &remark.message}) w.Text(*text);
  }
  w.Number(kernel.image.entries.size());
  for (const CodeImage::Entry& entry : kernel.image.entries) {
    w.Text(entry.name);
    w.Number(entry.offset);
    w.Number(entry.workspaces.size());
    for (const Dim& dim : entry.workspaces) w.Text(dim.ToString());
    w.Number(entry.checks ? 1 : 0);
  }
  return w.Take();
}

std::optional<CompileEngine::Made> FromBytes(std::string_view bytes) {
  Reader r(bytes);
  CompileEngine::Made kernel;
  lower::Lowered& how = kernel.how;
  how.done = true;
  for (std::string* text :
       {&how.strategy, &how.implementation, &how.why_not, &how.candidates, &kernel.image.bytes}) {
    *text = r.Text();
  }
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    how.packed.push_back(ReadLayout(r));
  }
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    const uint64_t argument = r.Number();
    how.in_place.emplace_back(argument, r.Number());
  }
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    std::string name = r.Text();
    how.own_sizes.emplace_back(std::move(name), Dim::Parse(r.Text()));
  }
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    lower::Remark& remark = how.remarks.emplace_back();
    for (std::string* text : {&remark.code, &remark.strategy, &remark.message}) *text = r.Text();
  }
  bool fits = true;
  for (uint64_t n = r.Number(); n > 0 && !r.failed(); --n) {
    CodeImage::Entry& entry = kernel.image.entries.emplace_back();
    entry.name = r.Text();
    entry.offset = r.Number();
    fits = fits && entry.offset < kernel.image.bytes.size();
    for (uint64_t k = r.Number(); k > 0 && !r.failed(); --k) {
      entry.workspaces.push_back(Dim::Parse(r.Text()));
    }
    entry.checks = r.Number() != 0;
  }
  return fits && r.done() ? std::optional(std::move(kernel)) : std::nullopt;
}

std::unique_ptr<const DiskCache> CacheIn(const std::string& folder, uint64_t limit) {
  if (folder.empty()) return nullptr;
  return std::make_unique<DiskCache>(folder, VersionOfCompiler(), limit);
}

// Nothing for an unknown key, or a file that is not as it was written.
std::optional<CompileEngine::Made> LoadFrom(const DiskCache& disk, const std::string& key) {
  const auto bytes = disk.Load(key);
  try {
    return bytes ? FromBytes(*bytes) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

CompileEngine::CompileEngine(const std::string& folder, uint64_t limit)
    : disk_(CacheIn(folder, limit)) {}

std::string CompileEngine::KeyOf(Operation* function, const std::vector<bool>& constant,
                                 const codegen::Target& target) {
  const TargetKeys keys = TargetKeys::Of(target.name);
  const auto has_other = [&](Operation& op) {
    return StrategyRegistry::Global().Has({&op, &keys});
  };
  if (has_other(*function) || std::ranges::any_of(*function->region(0).front(), has_other))
    return "";
  std::string key = StrCat(target.name, "\n");
  for (const bool c : constant) key += c ? 'c' : 'v';
  return StrCat(key, "\n", StructureText(function->region(0)));
}

std::shared_ptr<const CompileEngine::Kernel> CompileEngine::Compile(const std::string& key,
                                                                    const Make& make) {
  if (key.empty()) return Find(key, make);
  std::promise<Result> promise;
  std::shared_future<Result> result = promise.get_future().share();
  bool mine = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [at, fresh] = kernels_.emplace(key, result);
    mine = fresh;
    result = at->second;
  }
  if (!mine) {
    Result found;
    try {
      found = result.get();
    } catch (const Stopped&) {  // under limits that need not be this thread's
      CheckBudget();
    }
    if (!found) return Find("", make);  // so that everyone hears why not
    ++hits_;
    return found;
  }
  try {
    Result made = Find(key, make);
    if (!made) Forget(key);
    promise.set_value(std::move(made));
  } catch (...) {
    Forget(key);
    promise.set_exception(std::current_exception());
  }
  return result.get();
}

CompileEngine::Result CompileEngine::Find(const std::string& key, const Make& make) {
  const bool keeps = disk_ != nullptr && !key.empty();
  if (keeps) {
    if (auto found = LoadFrom(*disk_, key)) {
      ++disk_hits_;
      return std::make_shared<const Kernel>(*std::move(found));
    }
  }
  ++misses_;
  std::optional<Made> made = make();
  if (!made) return nullptr;
  if (keeps) disk_->Store(key, ToBytes(*made));
  return std::make_shared<const Kernel>(*std::move(made));
}

void CompileEngine::Forget(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  kernels_.erase(key);
}

}  // namespace lathe
