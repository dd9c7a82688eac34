#include "lathe/driver/every_way.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lathe/support/error.h"

namespace lathe {
namespace {

std::string NewFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "lathe-ways-XXXXXX").string();
  if (mkdtemp(path.data()) != nullptr) return path;
  throw Error(ErrorCode::kIo, "io/create", std::strerror(errno)).At(path);
}

// The first result that is not the same, bit by bit; empty if there is none.
std::string Difference(const NamedValues& wanted, const NamedValues& got) {
  if (got.size() != wanted.size()) return "the number of outputs";
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(got[i] == wanted[i])) return StrCat("'", wanted[i].first, "'");
  }
  return "";
}

// The outputs of a run, then the parameters that it leaves.
NamedValues Results(const Executable& executable, const NamedValues& inputs) {
  NamedValues results = executable.Run(inputs);
  for (const std::string& name : executable.MutableParameters()) {
    results.emplace_back(name, executable.GetParameter(name));
  }
  return results;
}

}  // namespace

EveryWay::EveryWay(const Program& program, CompileOptions options) : folder_(NewFolder()) {
  options.engine = nullptr;
  options.cache = cache();
  ways_.emplace_back("with an empty cache", Executable(program, options));
  ways_.emplace_back("with a filled cache", Executable(program, options));
  if (!made().CanSave()) return;
  const std::string file = folder_ + "/program.lx";
  made().Save(file);
  ways_.emplace_back("from a file", Executable::Load(file, {.threads = options.threads,
                                                            .max_bytes = options.max_bytes}));
}

EveryWay::~EveryWay() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

NamedValues EveryWay::Run(const NamedValues& inputs) const {
  NamedValues wanted = Results(made(), inputs);
  for (size_t i = 1; i < ways_.size(); ++i) {
    const std::string what = Difference(wanted, Results(ways_[i].second, inputs));
    if (what.empty()) continue;
    throw Error(ErrorCode::kInternal, "check/ways",
                StrCat(what, " has other bits ", ways_[i].first, " than ", ways_[0].first));
  }
  wanted.resize(made().outputs().size());
  return wanted;
}

}  // namespace lathe
