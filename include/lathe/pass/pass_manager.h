#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/pass/pass.h"
#include "lathe/support/rt_value.h"

namespace lathe {

/// A pipeline as text: `canonicalize,cse{skip=[nn.add]},cf.if(dead_code),builtin.func(simplify)`.
/// `op(...)`: on each region of every op of that kind; on several threads if they are isolated.
struct PipelineItem {
  std::string name;  ///< a pass, a named pipeline, or an op kind when `nested` is not empty
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<PipelineItem> nested;
};
/// Errors: pipeline/syntax with the column, pass/unknown with the nearest names, pass/option.
std::vector<PipelineItem> ParsePipeline(std::string_view text);
std::string PipelineToText(const std::vector<PipelineItem>& items);

/// Called around each pass; all may be combined. See instrumentation.h for those of the command.
class PassInstrumentation {
 public:
  virtual ~PassInstrumentation() = default;
  virtual void BeforePass(const Pass&, Program&) {}
  virtual void AfterPass(const Pass&, Program&) {}
  virtual void AfterFailure(const Pass&, Program&, const Error&) {}
};

struct PassManagerOptions {
  bool verify_each = false;
  int64_t stop_after = -1;  ///< passes to run; negative: all
  int threads = 0;          ///< for nested pipelines; 0: all; results do not depend on it
  bool remarks = false;
  std::vector<std::string> disabled = {};  ///< passes to skip by name
  int level = 2;                           ///< of the named pipelines, 0..3
  std::vector<std::string> enabled = {};   ///< passes of named pipelines to run at any level, and
                                           ///< kFastMath
};

struct PassTiming {
  std::string name;
  double seconds = 0;
  int64_t ops_before = 0;
  int64_t ops_after = 0;
  bool changed = false;
  int depth = 0;
};

/// Runs passes in order over a program.
class PassManager {
 public:
  explicit PassManager(PassManagerOptions options = {});
  ~PassManager();
  void Add(std::unique_ptr<Pass> pass);
  /// A pass by name with options; or a whole pipeline as text.
  void Add(std::string_view pipeline);
  void AddInstrumentation(std::shared_ptr<PassInstrumentation> instrumentation);

  /// Attributes of the graph that passes read (places, loss name, ...), kept over runs.
  AnyAttrs& graph_attrs();

  /// On an Error the program is left as the failing pass left it (use a clone to be safe); the
  /// error names the pass.
  void Run(Program& program);

  std::string ToText() const;
  size_t num_passes() const;
  const std::vector<PassTiming>& timings() const;
  const std::vector<Remark>& remarks() const;
  std::vector<const Pass*> passes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Among PassManagerOptions::enabled: algebra that is false in floating point, too, as
/// docs/optimizing.md lists it. Steps of level kByFastMath run, and no pass gets its option
/// `exact`.
inline constexpr const char* kFastMath = "fast_math";
inline constexpr int kByFastMath = 4;

/// One line of a named pipeline. At optimization level N its steps of level N and below run.
struct PipelineStep {
  int level;
  const char* passes;  ///< as text
  const char* why;
};
/// A named, ordered list of passes that fits on one screen; see src/transform/pipelines.cc. In a
/// pipeline as text `inference{level=3}` overrides PassManagerOptions::level.
struct NamedPipeline {
  const char* name;
  const char* doc;
  std::vector<PipelineStep> steps;
};
std::vector<NamedPipeline> NamedPipelines();

/// Runs the pipeline `name` ("inference", ...) at optimization `level`: 0 nothing, 1 what only
/// takes away, 2 fusions and folded weights, 3 what may cost memory. A level out of range is an
/// error (pass/level). What passes hide of the sizes that it relies on, the program states then.
void Optimize(Program& program, std::string_view name = "inference", int level = 2,
              PassManagerOptions options = {});

}  // namespace lathe
