#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/pass/analysis.h"
#include "lathe/pass/any_attrs.h"
#include "lathe/pass/graph.h"

namespace lathe {

/// One typed option of a pass, settable in a textual pipeline: `fuse{level=2,ops=[add, mul]}`.
struct PassOption {
  enum class Kind : uint8_t { kBool, kInt, kFloat, kString, kStrings };
  std::string name;
  Kind kind;
  std::string default_text;
  std::string doc;
  int64_t least = std::numeric_limits<int64_t>::min();  ///< of an integer
};

/// Something noticed while a pass ran: what fired, what almost matched and why not.
struct Remark {
  enum class Kind : uint8_t { kApplied, kMissed, kNote };
  Kind kind;
  std::string pass;
  std::string where;  ///< op and location
  std::string message;
};

/// What a pass sees of the run it is part of.
class PassContext {
 public:
  virtual ~PassContext() = default;
  virtual AnalysisManager& analyses() = 0;
  /// Kept only when somebody asked for remarks; cheap otherwise.
  virtual bool wants_remarks() const = 0;
  virtual void AddRemark(Remark remark) = 0;
  /// Whether a pass that changed the program verifies it afterwards.
  virtual bool verify() const { return true; }
};

/// A transformation of a program, with attributes, options, statistics and requirements.
///
///   class MyPass : public Pass {
///    public:
///     void ApplyImpl(Graph& graph) override { ... ; Count("folded"); }
///   };
///   REGISTER_PASS(my_pass, MyPass).Doc("...").RequirePassAttr("places");
class Pass : public AnyAttrs {
 public:
  Pass() : AnyAttrs("pass") {}
  virtual ~Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  const std::string& name() const { return name_; }

  /// Checks requirements, applies the pass to the program's top block, checks the result's
  /// structure. Errors: pass/missing-attr, pass/missing-graph-attr, pass/missing-pass,
  /// pass/conflict and what the pass itself throws. May be called again on the same or another
  /// program.
  void Apply(Graph& graph);
  void Apply(Program& program);

  /// Counts `n` under `statistic`; shown by --stats.
  void Count(std::string_view statistic, int64_t n = 1);
  const std::map<std::string, int64_t, std::less<>>& statistics() const { return statistics_; }
  /// Which analyses are still true after the last Apply; default: all if nothing changed, else
  /// none.
  virtual PreservedAnalyses Preserved() const {
    return changed_ ? PreservedAnalyses::None() : PreservedAnalyses::All();
  }
  bool changed() const { return changed_; }
  /// The block that is being worked on while the pass runs, else null. What stands outside of it
  /// stays as it is.
  Block* scope() const { return scope_; }

  // ---- options ----
  bool option_bool(std::string_view name) const;
  int64_t option_int(std::string_view name) const;
  double option_float(std::string_view name) const;
  const std::string& option(std::string_view name) const;
  std::vector<std::string> option_list(std::string_view name) const;
  /// Sets an option from text; unknown names (nearest suggested) and wrong kinds are errors.
  void SetOption(std::string_view name, std::string_view text);
  /// `name{option=value,...}` with every option that differs from its default: runs again as text.
  std::string ToText() const;

  void set_context(PassContext* context) { context_ = context; }

 protected:
  virtual void ApplyImpl(Graph& graph) = 0;
  /// The program was changed. The rewriter calls it for its own changes.
  void MarkChanged() { changed_ = true; }
  PassContext* context() const { return context_; }
  void Applied(const Operation* op, std::string message);
  /// Almost: `why` not, and for which op.
  void Missed(const Operation* op, std::string why);

 private:
  friend class PassRegistry;
  friend class PassManager;
  friend class Rewriter;
  void Note(Remark::Kind kind, const Operation* op, std::string message);
  std::string name_;
  const struct PassInfo* info_ = nullptr;
  PassContext* context_ = nullptr;
  bool changed_ = false;
  Block* scope_ = nullptr;
  std::map<std::string, int64_t, std::less<>> statistics_;
  std::map<std::string, std::string, std::less<>> options_;
};

/// What is known of a pass without making one.
struct PassInfo {
  std::string name;
  std::string doc;      ///< one line
  std::string details;  ///< for docs/passes.md
  std::function<std::unique_ptr<Pass>()> make;
  std::vector<std::string> required_pass_attrs;
  std::vector<std::string> required_graph_attrs;
  std::vector<std::string> required_passes;  ///< must have run earlier on this graph
  std::vector<std::string> conflicts;        ///< must not have run earlier
  std::vector<PassOption> options;
  std::vector<std::function<void(Pass&)>> defaults;
  bool machine_independent = true;
};

/// All passes of the process by name. Filled before main and by plug-ins; read-only afterwards.
class PassRegistry {
 public:
  static PassRegistry& Global();
  /// A name registered twice is an error when the registry is first used.
  PassInfo& Register(std::string name, std::function<std::unique_ptr<Pass>()> make);
  bool Has(std::string_view name) const;
  /// An unknown name is an error with the nearest ones.
  const PassInfo& Find(std::string_view name) const;
  std::unique_ptr<Pass> Make(std::string_view name) const;
  /// Another pass of the same name with the same options and attributes.
  std::unique_ptr<Pass> Clone(const Pass& pass) const;
  /// Sorted by name.
  std::vector<const PassInfo*> All() const;

 private:
  std::map<std::string, PassInfo, std::less<>> passes_;
  std::vector<std::string> duplicates_;
};

/// Chained by REGISTER_PASS.
class PassRegistrar {
 public:
  explicit PassRegistrar(PassInfo& info) : info_(info) {}
  PassRegistrar& Doc(std::string text);
  PassRegistrar& Details(std::string text);
  PassRegistrar& RequirePassAttr(std::string name);
  PassRegistrar& RequireGraphAttr(std::string name);
  PassRegistrar& RequirePass(std::string name);
  PassRegistrar& ConflictsWith(std::string name);
  PassRegistrar& Option(std::string name, PassOption::Kind kind, std::string default_text,
                        std::string doc);
  /// The integer option declared last takes nothing less.
  PassRegistrar& AtLeast(int64_t least);
  template <class T>
  PassRegistrar& DefaultPassAttr(std::string name, T value) {
    info_.defaults.push_back([name, value](Pass& pass) { pass.SetDefault<T>(name, value); });
    return *this;
  }

 private:
  PassInfo& info_;
};

/// Registers pass class `Class` under `name` in the library or in a user's shared library. Needs no
/// second macro: liblathe keeps all its objects.
#define REGISTER_PASS(name, Class)                                                \
  [[maybe_unused]] static const ::lathe::PassRegistrar pass_registration_##name = \
      ::lathe::PassRegistrar(::lathe::PassRegistry::Global().Register(            \
          #name, [] { return std::unique_ptr<::lathe::Pass>(new Class()); }))

}  // namespace lathe
