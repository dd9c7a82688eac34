#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <mutex>
#include <tuple>

#include "lathe/pass/pipeline_places.h"
#include "python/src/lent.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// Name, kind ("bool", "int", "float", "str", "list"), default as text.
using OptionEntry = std::tuple<std::string, std::string, std::string>;

PassOption::Kind KindNamed(const std::string& kind) {
  if (kind == "bool") return PassOption::Kind::kBool;
  if (kind == "int") return PassOption::Kind::kInt;
  if (kind == "float") return PassOption::Kind::kFloat;
  return kind == "list" ? PassOption::Kind::kStrings : PassOption::Kind::kString;
}

struct PythonPassInfo {
  Kept function;
  std::vector<PassOption> options;
};

// By name; a pass of Python may be registered again. Never freed, as the registry of passes.
struct Registered {
  std::mutex mutex;
  std::map<std::string, PythonPassInfo> passes;
};
Registered& TheRegistered() {
  static auto* registered = new Registered;
  return *registered;
}

class PythonPass : public Pass {
 public:
  explicit PythonPass(PythonPassInfo info) : info_(std::move(info)) {}

 protected:
  void ApplyImpl(Graph& graph) override {
    if (graph.block() != graph.program().block()) {
      throw Error(ErrorCode::kUnsupported, "pass/python",
                  StrCat("pass '", name(), "' is written in Python and takes whole programs"));
    }
    CallPython(StrCat("pass '", name(), "'"), [&] {
      const Lent lent(graph.program(), this);
      nb::dict options;
      for (const PassOption& o : info_.options) options[o.name.c_str()] = ValueOf(o);
      (*info_.function)(lent.holder(), **options);
    });
  }

 private:
  nb::object ValueOf(const PassOption& o) const {
    switch (o.kind) {
      case PassOption::Kind::kBool:
        return nb::bool_(option_bool(o.name));
      case PassOption::Kind::kInt:
        return nb::int_(option_int(o.name));
      case PassOption::Kind::kFloat:
        return nb::float_(option_float(o.name));
      case PassOption::Kind::kStrings:
        return nb::cast(option_list(o.name));
      default:
        return nb::cast(option(o.name));
    }
  }

  PythonPassInfo info_;
};

std::unique_ptr<Pass> MakePass(const std::string& name) {
  Registered& all = TheRegistered();
  const std::lock_guard lock(all.mutex);
  return std::make_unique<PythonPass>(all.passes.at(name));
}

// Of a pass that is registered again, what others may be reading stays as it is.
void CheckSameOptions(const PythonPassInfo& old, const PythonPassInfo& now,
                      const std::string& name) {
  const auto same = [](const PassOption& a, const PassOption& b) {
    return a.name == b.name && a.kind == b.kind && a.default_text == b.default_text;
  };
  if (std::ranges::equal(old.options, now.options, same)) return;
  throw Error(ErrorCode::kInvalidArgument, "pass/duplicate",
              StrCat("pass '", name, "' was registered with other options"))
      .Hint("give it another name");
}

void RegisterPass(const std::string& name, nb::object function, const std::string& doc,
                  const std::vector<OptionEntry>& options, const std::string& pipeline, int level,
                  const std::string& before) {
  PythonPassInfo info{Keep(std::move(function)), {}};
  for (const auto& [option, kind, text] : options) {
    info.options.push_back({option, KindNamed(kind), text, ""});
  }
  Registered& all = TheRegistered();
  Kept replaced;  // freed when the mutex is free
  {
    const std::lock_guard lock(all.mutex);
    const auto at = all.passes.find(name);
    if (at != all.passes.end()) {
      CheckSameOptions(at->second, info, name);
      replaced = std::exchange(at->second.function, info.function);
      return;
    }
    if (PassRegistry::Global().Has(name)) {
      throw Error(ErrorCode::kInvalidArgument, "pass/duplicate",
                  StrCat("there is a pass '", name, "' already"));
    }
    all.passes.emplace(name, info);
    PassInfo& entry = PassRegistry::Global().Register(name, [name] { return MakePass(name); });
    entry.doc = doc;
    entry.options = info.options;
  }
  if (!pipeline.empty()) JoinPipeline(name, {pipeline, level, before});
}

}  // namespace

std::vector<PassEntry> PassEntries() {
  const std::lock_guard lock(TheRegistered().mutex);  // none is half registered
  std::vector<PassEntry> all;
  for (const PassInfo* pass : PassRegistry::Global().All()) all.push_back({pass->name, pass->doc});
  return all;
}

void BindPasses(nb::module_& m) {
  m.def(
      "register_pass", RegisterPass, nb::arg("name"), nb::arg("function"), nb::arg("doc"),
      nb::arg("options"), nb::arg("pipeline"), nb::arg("level"), nb::arg("before"),
      nb::sig("def register_pass(name: str, function: collections.abc.Callable[..., object], doc: "
              "str, options: collections.abc.Sequence[tuple[str, str, str]], pipeline: str, "
              "level: int, before: str) -> None"));
}

}  // namespace lathe::python
