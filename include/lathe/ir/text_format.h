#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lathe/ir/program.h"

/// The text form (docs/ir.md): every program prints and parses, and `Parse(Print(p))` equals `p`.
namespace lathe {

struct PrintOptions {
  bool locations = true;           ///< `loc(...)` after each operation whose location is known
  bool file_locations = true;      ///< also where it is a position in a file
  bool runtime_attributes = true;  ///< attributes that the op's declaration does not list
};

/// Appends text to a growing buffer; what type and attribute printers write to.
class PrinterBase {
 public:
  std::string& out() { return out_; }
  PrinterBase& operator<<(std::string_view text) {
    out_.append(text);
    return *this;
  }
  void Print(Type type);
  void Print(Attribute attribute);
  void Print(const Dim& dim);
  void PrintInt(int64_t value);
  void PrintQuoted(std::string_view text);
  void Print(Location location, IrContext& context);

 protected:
  std::string out_;

 private:
  void PrintBuiltin(Type type);
  void PrintBuiltin(Attribute attribute);
  uint32_t depth_ = 0;
};

std::string Print(const Program& program, const PrintOptions& options = {});
std::string Print(const Operation* op, const PrintOptions& options = {});
/// Prints in pieces of bounded size to `sink`, so that a huge program needs no second copy.
void PrintTo(const Program& program, const PrintOptions& options,
             const std::function<void(std::string_view)>& sink);

struct ParseOptions {
  std::string file_name = "<text>";  ///< for locations and messages
  bool file_locations = true;        ///< ops without `loc` get file:line:column
  uint32_t max_nesting = 1'000'000;  ///< regions within regions; beyond: parse/nesting
  uint32_t max_type_nesting = 200;   ///< list<list<...>> and attribute arrays; at most 2000
};

/// Parses a program. The text need not outlive the call. Throws Error (ids parse/...) with line,
/// column, the line itself and what was expected; several errors come as `others`. Does not verify.
Program ParseProgram(IrContext& context, std::string_view text, const ParseOptions& options = {});
/// Memory-maps and parses a `.lathe` file.
Program ParseProgramFile(IrContext& context, const std::string& path);
Type ParseType(IrContext& context, std::string_view text);
Attribute ParseAttribute(IrContext& context, std::string_view text);

}  // namespace lathe
