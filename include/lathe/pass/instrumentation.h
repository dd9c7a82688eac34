#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/text_format.h"
#include "lathe/pass/pass_manager.h"

namespace lathe {

/// Prints the program around passes.
struct PrintingOptions {
  std::vector<std::string> before;  ///< pass names, or "all"
  std::vector<std::string> after;
  bool after_change = false;  ///< only what changed, as a diff of lines
  PrintOptions text;
  std::function<void(std::string_view)> sink;
};
std::shared_ptr<PassInstrumentation> MakePrinting(PrintingOptions options);

/// Writes a text program that `lathe opt` runs again to `path` when a pass fails: the program as it
/// was before the failing pass and, in its first comment, the rest of the pipeline from that pass
/// on.
std::shared_ptr<PassInstrumentation> MakeReproducer(std::string path);
/// The pipeline that a reproducer file names, or nothing.
std::optional<std::string> ReproducerPipeline(std::string_view text);

/// Op counts by name before and after each pass.
struct OpCountChange {
  std::string pass;
  std::map<std::string, int64_t> delta;
};
class OpCountInstrumentation : public PassInstrumentation {
 public:
  void BeforePass(const Pass& pass, Program& program) override;
  void AfterPass(const Pass& pass, Program& program) override;
  const std::vector<OpCountChange>& changes() const { return changes_; }

 private:
  std::map<std::string, int64_t> before_;
  std::vector<OpCountChange> changes_;
};
std::map<std::string, int64_t> CountOpsByName(const Program& program);

/// Tables for a person.
std::string RenderTimings(const PassManager& manager);
std::string RenderStatistics(const PassManager& manager);
std::string RenderOpCounts(const std::vector<OpCountChange>& changes);
std::string RenderRemarks(const std::vector<Remark>& remarks);

/// A line diff of two texts: unchanged runs are cut to `context` lines. Linear in the size of the
/// texts apart from the changed stretch.
std::string DiffLines(std::string_view before, std::string_view after, size_t context = 2);

/// A program as text, and the same lines with locations, by which operations are recognized.
struct PrintedProgram {
  std::string text, located;
};
/// The same of two programs. Values keep the names that they have in `before`, so that an operation
/// whose number alone has changed is unchanged; new values get new numbers.
std::string DiffPrograms(const PrintedProgram& before, const PrintedProgram& after,
                         size_t context = 2);

}  // namespace lathe
