#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/ir/text_format.h"
#include "src/ir/parser_memo.h"
#include "src/ir/text_parser.h"
#include "src/ir/value_scope.h"

namespace lathe {

/// Reads a whole program. Keeps its own stack of open regions; collects errors and goes on with the
/// next operation.
class ProgramParser {
 public:
  ProgramParser(IrContext& context, std::string_view text, const ParseOptions& options);
  Program Run();

 private:
  static constexpr size_t kMaxErrors = 20;

  /// The types behind `:`.
  struct Signature {
    std::vector<Type> operands;
    std::vector<Type> results;
  };
  /// What is known of an operation before its regions.
  struct Head {
    Lexer::Position position{};
    std::vector<ValueName> results;
    std::string_view name;
    OpInfo info;
    std::vector<Value> operands;
    std::vector<const char*> operand_places;
    DictionaryAttribute attributes;
    bool poisoned = false;  ///< it uses a value whose definition was in error
  };
  /// An operation whose regions are being read. Its blocks wait here until it can be made.
  struct Frame {
    Head head;
    std::vector<Block*> blocks;
    std::vector<size_t> region_ends;  ///< number of blocks after each finished region
    Block* outer = nullptr;           ///< the block that will hold the operation
    bool in_region = false;           ///< names of the current block are in scope
  };

  // ---- structure ----
  void ReadAll();
  bool Step();
  void ParseHeader();
  bool StartsAttributes();
  void FinishProgram();
  void ParseBlockHeader();
  void NewBlock();
  void CloseBlockScope();
  void OpenRegion();
  void CloseRegion();
  Block* TargetBlock();

  // ---- operations ----
  void ParseOp();
  void ParseResultNames();
  void ParseOpName();
  void ParseOperands();
  void ParseOperand();
  ValueName ParseValueName();
  DictionaryAttribute ParseAttributes();
  void BeginRegions();
  void FinishOp(Head& head, Frame* frame);
  const Signature& ParseSignature(const Head& head);
  void ReadSignature(Signature& signature);
  const Signature& OmittedSignature(const Head& head);
  void CheckSignature(const Head& head, const Signature& signature, const char* at);
  Location ParseOpLocation(const Head& head);
  Operation* CreateOp(const Head& head, const Signature& signature, size_t num_regions,
                      Location location);
  void DefineResults(const Head& head, Operation* op);

  // ---- errors ----
  void Report(Error error);
  void Recover();
  void Poison(const Head& head);
  void DiscardBlocks(Frame& frame);
  [[noreturn]] void Undefined(const ValueName& name);
  void CheckFresh(const ValueName& name);
  const char* FindLaterDefinition(std::string_view name) const;

  IrContext& context_;
  const ParseOptions& options_;
  TextParser parser_;
  Lexer& lexer_;
  Program program_;
  uint32_t file_id_ = 0;
  uint32_t max_number_;
  ValueScope scope_;
  std::vector<Frame> frames_;
  Block* block_ = nullptr;  // where operations go; null before the first block of a region
  Head head_;
  Signature scratch_;
  TextMemo<OpInfo> op_memo_{256};
  TextMemo<DictionaryAttribute> dictionary_memo_{1024};
  TextMemo<Signature> signature_memo_{1024};
  const char* statement_ = nullptr;  // where to look for the end of a faulty operation
  std::vector<Error> errors_;
  bool give_up_ = false;
};

}  // namespace lathe
