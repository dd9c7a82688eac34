#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/memory_plan.h"
#include "lathe/pass/pass.h"

namespace lathe {

namespace {

/// "N=4" as a symbol and its size.
Dim::Binding ParseSymbol(const std::string& text) {
  const size_t equals = text.find('=');
  const auto value = equals == std::string::npos
                         ? std::nullopt
                         : ParseInt(std::string_view(text).substr(equals + 1));
  if (!value || *value < 0 || equals == 0) {
    throw Error(ErrorCode::kInvalidArgument, "memory/symbol",
                StrCat("'", text, "' is not of the form N=4"));
  }
  return {text.substr(0, equals), *value};
}

}  // namespace

/// Writes the plan on the ops; computes nothing else.
class MemoryOptimizePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    MemoryPlanOptions options;
    for (const std::string& text : option_list("symbols")) {
      options.symbols.push_back(ParseSymbol(text));
    }
    const int64_t alignment = option_int("alignment");
    if (alignment <= 0 || (alignment & (alignment - 1)) != 0) {
      throw Error(ErrorCode::kInvalidArgument, "pass/option",
                  StrCat("the alignment is a power of two, not ", alignment));
    }
    options.alignment = static_cast<size_t>(alignment);
    options.share = option_bool("share");
    MemoryPlan plan(graph.program(), options);
    Annotate(graph, plan);
    Explain(plan);
    CountBytes(plan);
    if (graph.Has("memory_plan")) graph.Erase("memory_plan");
    graph.Set("memory_plan", std::move(plan));
  }

 private:
  void Annotate(Graph& graph, const MemoryPlan& plan) {
    IrContext& context = graph.context();
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      std::vector<int64_t> ids;
      std::vector<int64_t> offsets;
      bool planned = false;
      for (size_t i = 0; i < op->num_results(); ++i) {
        const uint32_t id = plan.storage_of(op->result(i));
        const bool has = id != MemoryPlan::kNone;
        const bool placed = has && plan.storages()[id].in_arena;
        planned |= has;
        ids.push_back(has ? id : -1);
        offsets.push_back(placed ? static_cast<int64_t>(plan.storages()[id].offset) : -1);
      }
      const auto set = [&](const char* name, std::span<const int64_t> values) {
        const Attribute value = planned ? ArrayAttribute::Get(context, values) : Attribute();
        if (op->attribute(name) == value) return;
        op->SetAttribute(name, value);
        MarkChanged();
      };
      set("storage_id", ids);
      set("storage_offset", offsets);
    }
  }

  void Explain(const MemoryPlan& plan) {
    if (context() == nullptr || !context()->wants_remarks()) return;
    for (size_t id = 0; id < plan.storages().size(); ++id) {
      const MemoryPlan::Storage& s = plan.storages()[id];
      const Operation* maker = s.values.front().defining_op();
      if (s.in_arena) {
        Applied(maker, StrCat("storage ", id, ": bytes ", s.offset, " to ", s.offset + s.bytes,
                              ", steps ", s.begin, " to ", s.end));
      } else {
        Applied(maker, StrCat("storage ", id, ": ", s.bytes, " bytes outside the arena"));
      }
      for (size_t i = 1; i < s.values.size(); ++i) {
        Applied(s.values[i].defining_op(), StrCat("in storage ", id));
      }
    }
    for (const Value v : plan.dynamic()) {
      Missed(v.defining_op(), StrCat("no storage: the size of ", v.type().ToString(),
                                     " is not known before it runs"));
    }
  }

  void CountBytes(const MemoryPlan& plan) {
    Count("bytes", static_cast<int64_t>(plan.peak()));
    Count("bytes alive at the worst step", static_cast<int64_t>(plan.lower_bound()));
    Count("bytes without sharing", static_cast<int64_t>(plan.unshared()));
    Count("values without a storage", static_cast<int64_t>(plan.dynamic().size()));
  }
};

REGISTER_PASS(memory_optimize, MemoryOptimizePass)
    .Doc("plans which bytes of one arena each value takes and writes the plan on the ops")
    .Details(
        "Runtime attributes, one entry a result: storage_id (-1: none) and storage_offset in bytes "
        "(-1: outside the arena, as inputs, constants and parameters are). Elementwise results "
        "take "
        "the place of an operand that dies there; reshapes share their operand's. The graph "
        "attribute memory_plan (MemoryPlan) holds the whole plan; --stats prints its size beside "
        "the least that any plan needs, --explain the storages.")
    .Option("symbols", PassOption::Kind::kStrings, "[]", "sizes of symbolic dims: [N=1, S=128]")
    .Option("alignment", PassOption::Kind::kInt, "64", "of every offset")
    .AtLeast(1)
    .Option("share", PassOption::Kind::kBool, "true",
            "write over operands that die, let reshapes share");

}  // namespace lathe
