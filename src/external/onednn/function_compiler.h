#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/pack_blocks.h"
#include "src/external/onednn/node.h"
#include "src/external/onednn/sequence.h"

namespace lathe::onednn {

/// Turns a function of operations that oneDNN takes into primitives.
///
/// Images stay channels last between convolutions and pools; they are row-major where the function
/// takes and gives them. A convolution or product takes along what follows it, as far as oneDNN has
/// fast code for that.
class FunctionCompiler {
 public:
  /// `in_parts`: what is large becomes several primitives, which threads share.
  FunctionCompiler(const dnnl::engine& engine, const Operation* function, const Program& program,
                   bool in_parts = true);

  /// Once. Errors: external/compile.
  std::shared_ptr<const Sequence> Compile();
  int64_t arena_bytes() const { return arena_bytes_; }
  /// A line per primitive: what it computes, and with which code of oneDNN.
  const std::string& steps() const { return lines_; }

 private:
  // A convolution or product with what follows it, as one primitive.
  struct Chain {
    Node node;
    std::vector<Operation*> ops;
  };
  // Where a value is, in which layouts.
  struct State {
    std::optional<Place> row_major;
    std::vector<std::pair<Layout, Place>> others;
  };

  void AddConstant(Operation* op);
  void FindChains();
  Chain LongestChain(Operation* anchor) const;
  Operation* NextOf(Value result) const;
  bool TryChain(Operation* anchor, std::span<Operation* const> followers, Chain& chain) const;
  void Visit(Operation* op);
  bool WantsChannelsLast(const Operation* op) const;
  void Emit(const Node& node, std::span<Operation* const> ops);
  void SetResults();

  Place Read(Value value, const Layout& view, const Layout& wanted);
  Place RowMajorOf(Value value, const Layout& view);
  Place Reorder(Place from, const Layout& is, const Layout& wanted, std::string_view why);
  Place NewStorage(int64_t bytes);
  Place AddConstantBytes(std::shared_ptr<const void> owner, const void* data);
  void AddStep(const dnnl::primitive_desc& primitive, std::vector<Piece::Operand> operands,
               const std::string& what);
  std::vector<Part> PartsOf(const Node& node, const dnnl::primitive_desc& whole) const;
  void AddParts(const Node& node, std::span<const Part> parts,
                const std::vector<Piece::Operand>& operands);
  void AddPiece(Step& step, const dnnl::primitive_desc& primitive,
                std::vector<Piece::Operand> operands);
  void PlaceStorages();

  dnnl::engine engine_;
  Block& body_;
  const Program& program_;
  const bool in_parts_;
  std::shared_ptr<Sequence> sequence_;
  // Looked up, never iterated.
  std::unordered_map<Value, State> states_;
  std::unordered_map<const Operation*, Chain> chains_;  // by the last op
  std::unordered_set<const Operation*> inside_;         // all ops of chains but the last ones
  std::vector<MemoryBlock> storages_;
  std::vector<uint32_t> result_of_;  // per storage the result that it is; kNoResult
  int64_t arena_bytes_ = 0;
  std::string lines_;
};

}  // namespace lathe::onednn
