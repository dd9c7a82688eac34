#include "lathe/pass/instrumentation.h"

#include <algorithm>
#include <cstdio>

#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/support/file.h"

namespace lathe {

namespace {

bool Names(const std::vector<std::string>& list, const std::string& pass) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& n) { return n == "all" || n == pass; });
}

class Printing : public PassInstrumentation {
 public:
  explicit Printing(PrintingOptions options) : options_(std::move(options)) {}

  void BeforePass(const Pass& pass, Program& program) override {
    if (options_.after_change) before_ = Printed(program);
    if (Names(options_.before, pass.name())) Show("before", pass, Print(program, options_.text));
  }

  void AfterPass(const Pass& pass, Program& program) override {
    const bool print = Names(options_.after, pass.name());
    if (print) Show("after", pass, Print(program, options_.text));
    if (!options_.after_change) return;
    const PrintedProgram after = Printed(program);
    if (after.text != before_.text) Show("changed by", pass, DiffPrograms(before_, after));
  }

 private:
  void Show(const char* when, const Pass& pass, const std::string& text) {
    options_.sink(StrCat("// ---- ", when, " ", pass.ToText(), " ----\n", text));
  }
  PrintedProgram Printed(const Program& program) const {
    PrintOptions located = options_.text;
    located.locations = true;
    return {Print(program, options_.text), Print(program, located)};
  }

  PrintingOptions options_;
  PrintedProgram before_;
};

constexpr std::string_view kReproducerMark = "// lathe-reproducer: ";

/// The file is there while a pass runs, so that one that crashes leaves it, too.
class Reproducer : public PassInstrumentation {
 public:
  explicit Reproducer(std::string path) : path_(std::move(path)) {}
  void BeforePass(const Pass& pass, Program& program) override {
    text_ = StrCat(kReproducerMark, pass.ToText(), "\n", Print(program));
    WriteFile(path_, text_);
  }
  void AfterPass(const Pass&, Program&) override { std::remove(path_.c_str()); }
  void AfterFailure(const Pass&, Program&, const Error&) override { WriteFile(path_, text_); }

 private:
  std::string path_;
  std::string text_;
};

}  // namespace

std::shared_ptr<PassInstrumentation> MakePrinting(PrintingOptions options) {
  return std::make_shared<Printing>(std::move(options));
}

std::shared_ptr<PassInstrumentation> MakeReproducer(std::string path) {
  return std::make_shared<Reproducer>(std::move(path));
}

std::optional<std::string> ReproducerPipeline(std::string_view text) {
  if (!text.starts_with(kReproducerMark)) return std::nullopt;
  text.remove_prefix(kReproducerMark.size());
  return std::string(text.substr(0, text.find('\n')));
}

// ---- op counts ----

std::map<std::string, int64_t> CountOpsByName(const Program& program) {
  std::unordered_map<const OpInfoImpl*, int64_t> counts;  // look-up only
  std::map<std::string, int64_t> by_name;
  for (OpWalker w(program.module()); Operation* op = w.Next();) ++counts[op->info().impl()];
  for (const auto& [info, count] : counts) by_name[std::string(info->name)] = count;
  return by_name;
}

void OpCountInstrumentation::BeforePass(const Pass&, Program& program) {
  before_ = CountOpsByName(program);
}

void OpCountInstrumentation::AfterPass(const Pass& pass, Program& program) {
  OpCountChange change{pass.name(), {}};
  for (const auto& [name, count] : CountOpsByName(program)) change.delta[name] = count;
  for (const auto& [name, count] : before_) change.delta[name] -= count;
  std::erase_if(change.delta, [](const auto& entry) { return entry.second == 0; });
  changes_.push_back(std::move(change));
}

// ---- tables ----

namespace {
std::string Milliseconds(double seconds) {
  char text[32];
  snprintf(text, sizeof(text), "%10.3f", seconds * 1e3);
  return text;
}
}  // namespace

std::string RenderTimings(const PassManager& manager) {
  double total = 0;
  std::string out = "        ms       ops  pass\n";
  for (const PassTiming& t : manager.timings()) {
    total += t.seconds;
    const std::string delta = t.ops_after == t.ops_before ? "" : StrCat(t.ops_after - t.ops_before);
    out +=
        StrCat(Milliseconds(t.seconds), std::string(delta.size() < 10 ? 10 - delta.size() : 0, ' '),
               delta, "  ", std::string(static_cast<size_t>(t.depth) * 2, ' '), t.name,
               t.changed ? "" : "  (no change)", "\n");
  }
  return out + StrCat(Milliseconds(total), "            total\n");
}

std::string RenderStatistics(const PassManager& manager) {
  std::string out;
  for (const Pass* pass : manager.passes()) {
    for (const auto& [name, count] : pass->statistics()) {
      if (count == 0) continue;
      const std::string number = StrCat(count);
      out += StrCat(std::string(number.size() < 10 ? 10 - number.size() : 0, ' '), number, "  ",
                    pass->name(), ": ", name, "\n");
    }
  }
  return out;
}

std::string RenderOpCounts(const std::vector<OpCountChange>& changes) {
  std::string out;
  for (const OpCountChange& change : changes) {
    if (change.delta.empty()) continue;
    out += change.pass + "\n";
    for (const auto& [name, delta] : change.delta) {
      const std::string number = StrCat(delta > 0 ? "+" : "", delta);
      out += StrCat(std::string(number.size() < 8 ? 8 - number.size() : 0, ' '), number, "  ", name,
                    "\n");
    }
  }
  return out;
}

std::string RenderRemarks(const std::vector<Remark>& remarks) {
  static constexpr const char* kKinds[] = {"applied", "missed", "note"};
  std::string out;
  for (const Remark& r : remarks) {
    out +=
        StrCat("remark[", r.pass, "/", kKinds[static_cast<size_t>(r.kind)], "]: ", r.message, "\n");
    if (!r.where.empty()) out += StrCat("  --> ", r.where, "\n");
  }
  return out;
}

}  // namespace lathe
