#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe {

struct SymbolNode;

/// Output `index` of a node. Of a variable: its value after `version` writes.
struct SymbolEntry {
  std::shared_ptr<SymbolNode> node;  ///< null: an absent optional operand
  uint32_t index = 0;
  uint32_t version = 0;
};

/// Keys and values as text, as in `{{"strides", "[2, 2]"}, {"ctx", "gpu"}}`.
using SymbolAttrs = std::vector<std::pair<std::string, std::string>>;

/// What a symbol says too little about: types of variables, and weights.
struct SymbolBindings {
  std::vector<std::pair<std::string, Type>> types = {};
  std::vector<std::pair<std::string, Tensor>> parameters = {};
};

/// A network written down before anything is known of its shapes [NNVM]: a list of outputs from
/// which the nodes behind them are reached. Copying a Symbol shares its nodes; `Copy` does not.
///
///   Symbol x = Symbol::CreateVariable(context, "x");
///   Symbol y = Symbol::CreateFunctor(context, "nn.gemm")({x}, {}, "fc");  // makes fc_b and fc_c
///   Program program = Symbol::CreateGroup({y + 1.0}).ToProgram();
///
/// Ops, their arguments and attributes are those of the op table. Not thread-safe where nodes are
/// shared. Depth is limited by memory alone.
class Symbol {
 public:
  enum ListAttrOption { kRecursive = 0, kShallow = 1 };
  enum ListInputOption { kAll = 0, kReadOnlyArgs = 1, kAuxiliaryStates = 2 };
  using Args = std::vector<Symbol>;
  using Kwargs = std::vector<std::pair<std::string, Symbol>>;

  // ---- making symbols ----
  /// `__shape__` and `__dtype__` among the attributes say what ToProgram is not told otherwise.
  static Symbol CreateVariable(IrContext& context, std::string_view name, SymbolAttrs attrs = {});
  /// An op without arguments yet. Keys are the op's attributes; `use_<operand>` = true or false for
  /// an optional operand of a layer; `num_results`; any other key is a runtime attribute, unless it
  /// looks like a misspelt one: symbol/unknown-attribute (`__key__` never does).
  static Symbol CreateFunctor(OpInfo op, const SymbolAttrs& attrs = {});
  static Symbol CreateFunctor(IrContext& context, std::string_view op,
                              const SymbolAttrs& attrs = {});
  /// All outputs of `symbols`, in order.
  static Symbol CreateGroup(const std::vector<Symbol>& symbols);
  /// A number whose element type is that of the operand that it meets.
  static Symbol CreateScalar(IrContext& context, double value);

  // ---- composition ----
  /// Gives a functor its arguments, in place: by position, then by name; what a layer still lacks
  /// becomes a variable `<name>_<argument>` with the runtime attributes of the op. A variable that
  /// the op writes gets a new version. On a symbol that has its arguments: replaces variables by
  /// name, everywhere or, on an error, nowhere.
  void Compose(const Args& args, const Kwargs& kwargs = {}, std::string_view name = "");
  /// The same on a copy.
  Symbol operator()(const Args& args, const Kwargs& kwargs = {}, std::string_view name = "") const;
  Symbol Copy() const;
  /// The ops of `src` run before this symbol's op, which must be one with one output.
  void AddControlDeps(const Symbol& src);

  // ---- outputs and inputs ----
  /// The context of its ops.
  IrContext& context() const;
  size_t num_outputs() const { return outputs_.size(); }
  const std::vector<SymbolEntry>& outputs() const { return outputs_; }
  Symbol operator[](size_t index) const;
  /// By output name.
  Symbol operator[](std::string_view name) const;
  /// Variables in post-order: an op after what it reads. Auxiliary states are those that some op
  /// writes or keeps a state in.
  std::vector<Symbol> ListInputs(ListInputOption option = kAll) const;
  std::vector<std::string> ListInputNames(ListInputOption option = kAll) const;
  /// `<node>_<output>`; a variable's own name.
  std::vector<std::string> ListOutputNames() const;
  /// Every visible output of every node, variables included, in post-order.
  Symbol GetInternals() const;
  /// What the outputs' nodes read; empty if they read nothing.
  Symbol GetChildren() const;

  // ---- attributes: of a symbol with one node ----
  void SetAttrs(const SymbolAttrs& attrs);
  /// Also `name`, `op_name` ("null" for a variable) and `_value_index`.
  bool GetAttr(std::string_view key, std::string* out) const;
  /// Recursive: keys are `<node>$<key>`.
  std::map<std::string, std::string> ListAttrs(ListAttrOption option) const;
  /// Node, key, value; nodes in post-order.
  std::vector<std::tuple<std::string, std::string, std::string>> ListAttrsRecursive() const;

  // ---- out ----
  void Print(std::ostream& os) const;
  /// A program whose parameters are the bound ones and the auxiliary states (zeros where no data is
  /// given), whose feeds are the other variables, and whose fetches are the outputs. Verified.
  Program ToProgram(const SymbolBindings& bindings = {}) const;

  // ---- elementwise arithmetic ----
  friend Symbol operator+(const Symbol& a, const Symbol& b);
  friend Symbol operator-(const Symbol& a, const Symbol& b);
  friend Symbol operator*(const Symbol& a, const Symbol& b);
  friend Symbol operator/(const Symbol& a, const Symbol& b);
  friend Symbol operator-(const Symbol& a);
  friend Symbol operator+(const Symbol& a, double b);
  friend Symbol operator+(double a, const Symbol& b);
  friend Symbol operator-(const Symbol& a, double b);
  friend Symbol operator-(double a, const Symbol& b);
  friend Symbol operator*(const Symbol& a, double b);
  friend Symbol operator*(double a, const Symbol& b);
  friend Symbol operator/(const Symbol& a, double b);
  friend Symbol operator/(double a, const Symbol& b);
  friend Symbol Pow(const Symbol& a, const Symbol& b);
  friend Symbol Pow(const Symbol& a, double b);
  /// Writes `value` into `variable`; the result is what the variable holds afterwards.
  friend Symbol Assign(const Symbol& variable, const Symbol& value);

 private:
  friend class SymbolReader;
  explicit Symbol(std::vector<SymbolEntry> outputs) : outputs_(std::move(outputs)) {}
  SymbolNode& OnlyNode(const char* what) const;
  void ComposeFunctor(SymbolNode& node, const Args& args, const Kwargs& kwargs);
  void ReplaceVariables(const Kwargs& kwargs);

  std::vector<SymbolEntry> outputs_;
};

/// A note of a graph in JSON: a string, an integer, or a list of these or of shapes.
using GraphNote = std::variant<std::string, int64_t, std::vector<int64_t>, std::vector<std::string>,
                               std::vector<std::vector<int64_t>>>;
using GraphNotes = std::map<std::string, GraphNote>;

/// NNVM's JSON: `nodes`, `arg_nodes`, `node_row_ptr`, `heads`, `attrs`; nodes in post-order. Saving
/// what was loaded gives the same bytes.
std::string SaveJson(const Symbol& symbol, const GraphNotes& notes = {});
struct LoadedSymbol {
  Symbol symbol;
  GraphNotes notes;
};
/// Throws parse/symbol-json where the text is malformed, ir/unknown-op for ops that the context
/// lacks (all of them at once).
LoadedSymbol LoadJson(IrContext& context, std::string_view text);

}  // namespace lathe
