#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/dialect/learned_interface.h"
#include "lathe/frontend/symbol.h"

namespace lathe {

struct SymbolNode {
  IrContext* context;
  OpInfo op;  ///< null: a variable
  std::string name;
  std::map<std::string, std::string> attrs;
  std::vector<SymbolEntry> inputs = {};
  std::vector<std::shared_ptr<SymbolNode>> control_deps = {};
  uint32_t version = 0;   ///< of a variable: how often it has been written
  bool composed = false;  ///< has its arguments

  SymbolNode(IrContext& c, OpInfo o, std::string_view n) : context(&c), op(o), name(n) {}
  SymbolNode(const SymbolNode&) = default;
  ~SymbolNode();
  bool is_variable() const { return !op; }
};

namespace symbol {

using NodePtr = std::shared_ptr<SymbolNode>;
using Entries = std::vector<SymbolEntry>;

constexpr std::string_view kNumResults = "num_results";
constexpr std::string_view kUsePrefix = "use_";
constexpr std::string_view kShapeKey = "__shape__";
constexpr std::string_view kDtypeKey = "__dtype__";

/// All nodes behind `outputs`, inputs before control dependencies, each after both. The one order
/// in which lists, files and programs are made.
std::vector<SymbolNode*> PostOrder(const Entries& outputs);

/// `variable 'x'`, `nn.gemm 'fc'`: for messages.
std::string Describe(const SymbolNode& node);

/// How many results a user sees: those that the op always has, or as many as were asked for.
size_t NumVisible(const SymbolNode& node);
/// Name of result `index` with the node's before it.
std::string OutputName(const SymbolNode& node, size_t index);
Entries VisibleOutputs(const NodePtr& node);

/// What kind of key of a node's attributes this is.
enum class KeyKind { kDeclared, kFrontEnd, kRuntime };
KeyKind KindOf(const SymbolNode& node, std::string_view key);
/// Throws unless `key` may have that text.
void CheckAttr(const SymbolNode& node, const std::string& key, const std::string& text);
/// The op's attributes as the IR has them, runtime ones as strings.
std::vector<NamedAttribute> TypedAttrs(const SymbolNode& node);
/// The attributes that declare nothing of the op's.
std::map<std::string, std::string> RuntimeAttrs(const SymbolNode& node);

/// Optional operand `i` becomes a variable if it is not given.
bool WantsOptional(const SymbolNode& node, const LearnedContext* learned, size_t i);
/// What the op's layer entry says; nothing if it has none.
std::unique_ptr<LearnedContext> LearnedOf(const SymbolNode& node);

/// Operand `operand` is a variable that the node leaves with the value of `result`, changed or not.
struct Write {
  size_t operand;
  size_t result;
  bool changes;
};
std::vector<Write> WritesOf(const SymbolNode& node);

/// Gives the variables among a node's inputs their versions, a new one where the node writes.
void UpdateVersions(SymbolNode& node);

/// The node is a plain number that takes the element type of what it meets.
bool IsScalar(const SymbolNode& node);

}  // namespace symbol
}  // namespace lathe
