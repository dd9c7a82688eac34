#include <charconv>
#include <vector>

#include "lathe/ir/builtin_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/text.h"
#include "src/ir/value_numbers.h"

namespace lathe {

namespace {

constexpr size_t kPieceSize = size_t{1} << 20;
// Deeper regions are indented no further: indentation must not make the text quadratic.
constexpr size_t kMaxIndent = 32;
constexpr size_t kCacheSize = 1024;
constexpr size_t kMaxCached = 4096;

using Sink = std::function<void(std::string_view)>;

class ProgramPrinter : private PrinterBase {
 public:
  ProgramPrinter(IrContext& context, const PrintOptions& options, const Sink* sink)
      : context_(context), options_(options), sink_(sink) {}

  void PrintModule(const Operation* module);
  void PrintOne(const Operation* op, bool regions);
  std::string Take() { return std::move(out_); }

 private:
  // A block being printed: its operations from `next` on, then the rest of its owner's regions.
  struct Frame {
    const Operation* owner;
    size_t region;
    const Block* block;
    const Operation* next;
  };
  // Rendered text of a type or dictionary, found again by its handle.
  struct CacheEntry {
    const void* key = nullptr;
    std::string text;
  };

  void PrintBody();
  void PrintOp(const Operation* op);
  void PrintHead(const Operation* op);
  void PrintTail(const Operation* op);
  void PrintLocation(Location location);
  void PrintAttributes(const Operation* op);
  DictionaryAttribute Required(const Operation* op) const;
  void OpenRegion(const Operation* op, size_t region);
  void OpenBlock(const Block* block, bool first);
  void CloseRegion();
  void Flush();

  void Indent() { out_.append(2 * std::min(depth_, kMaxIndent), ' '); }
  void Define(Value v);
  void PrintUse(Value v);
  void PrintNumber(std::string_view prefix, uint32_t number);
  void PrintTypes(const Operation* op);
  template <class T>
  void PrintCached(T item);

  IrContext& context_;
  const PrintOptions options_;
  const Sink* sink_;
  std::vector<Frame> stack_;
  size_t depth_ = 0;
  ValueNumbers numbers_;
  uint32_t next_number_ = 0;
  ValueNumbers outside_;  // values defined outside what is printed
  uint32_t next_outside_ = 0;
  std::vector<CacheEntry> cache_{kCacheSize};
};

void ProgramPrinter::PrintModule(const Operation* module) {
  out_ += "program ";
  if (module->attributes().size() > 0) {
    Print(module->attributes());
    out_ += ' ';
  }
  out_ += "{\n";
  depth_ = 1;
  const Block* block = module->region(0).front();
  if (block->num_arguments() > 0) OpenBlock(block, /*first=*/true);
  stack_.push_back({nullptr, 0, block, block->front()});
  PrintBody();
  out_ += '}';
  PrintLocation(module->location());
  out_ += '\n';
  Flush();
}

void ProgramPrinter::PrintOne(const Operation* op, bool regions) {
  if (regions) {
    PrintOp(op);
    PrintBody();
    if (!out_.empty() && out_.back() == '\n') out_.pop_back();
    return;
  }
  PrintHead(op);
  if (op->num_regions() > 0) out_ += " (...)";
  PrintTail(op);
  out_.pop_back();
}

void ProgramPrinter::PrintBody() {
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    if (top.next != nullptr) {
      const Operation* op = top.next;
      top.next = op->next();
      PrintOp(op);
    } else if (top.owner != nullptr && top.block != nullptr && top.block->next() != nullptr) {
      top.block = top.block->next();
      top.next = top.block->front();
      OpenBlock(top.block, /*first=*/false);
    } else {
      CloseRegion();
    }
  }
}

void ProgramPrinter::PrintOp(const Operation* op) {
  Indent();
  PrintHead(op);
  if (op->num_regions() > 0) {
    out_ += " (";
    OpenRegion(op, 0);
  } else {
    PrintTail(op);
  }
  if (out_.size() > kPieceSize) Flush();
}

void ProgramPrinter::PrintHead(const Operation* op) {
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (i > 0) out_ += ", ";
    Define(op->result(i));
  }
  if (op->num_results() > 0) out_ += " = ";
  if (IsBareIdentifier(op->name()) && op->name() != "loc") {
    out_ += op->name();
  } else {
    PrintQuoted(op->name());
  }
  out_ += '(';
  bool first = true;
  for (const detail::OpOperandImpl& operand : op->operands()) {
    if (!first) out_ += ", ";
    first = false;
    PrintUse(Value(operand.value));
  }
  out_ += ')';
  PrintAttributes(op);
}

void ProgramPrinter::PrintTail(const Operation* op) {
  PrintTypes(op);
  PrintLocation(op->location());
  out_ += '\n';
}

void ProgramPrinter::PrintTypes(const Operation* op) {
  out_ += " : (";
  bool first = true;
  for (const detail::OpOperandImpl& operand : op->operands()) {
    if (!first) out_ += ", ";
    first = false;
    if (operand.value == nullptr) {
      out_ += "none";
    } else {
      PrintCached(operand.value->type);
    }
  }
  out_ += ") -> ";
  const bool single = op->num_results() == 1;
  if (!single) out_ += '(';
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (i > 0) out_ += ", ";
    PrintCached(op->result(i).type());
  }
  if (!single) out_ += ')';
}

template <class T>
void ProgramPrinter::PrintCached(T item) {
  const void* key = item.storage();
  CacheEntry& entry = cache_[(reinterpret_cast<uintptr_t>(key) >> 4) % kCacheSize];
  if (entry.key == key && key != nullptr) {
    out_ += entry.text;
    return;
  }
  const size_t start = out_.size();
  Print(item);
  if (out_.size() - start > kMaxCached) return;
  entry.key = key;
  entry.text.assign(out_, start);
}

void ProgramPrinter::PrintAttributes(const Operation* op) {
  const DictionaryAttribute all = op->attributes();
  if (all.size() == 0) return;
  if (options_.runtime_attributes || op->info().def() == nullptr) {
    out_ += ' ';
    PrintCached(all);
    return;
  }
  const DictionaryAttribute required = Required(op);
  if (required.size() == 0) return;
  out_ += ' ';
  PrintCached(required);
}

DictionaryAttribute ProgramPrinter::Required(const Operation* op) const {
  std::vector<NamedAttribute> kept;
  for (const NamedAttribute& entry : op->attributes().entries()) {
    for (const StrAttribute name : op->info().impl()->attribute_names()) {
      if (name == entry.name) kept.push_back(entry);
    }
  }
  return DictionaryAttribute::Get(context_, kept);
}

void ProgramPrinter::PrintLocation(Location location) {
  if (!options_.locations || location.is_unknown()) return;
  if (location.is_file() && !options_.file_locations) return;
  out_ += " loc(";
  Print(location, context_);
  out_ += ')';
}

void ProgramPrinter::OpenRegion(const Operation* op, size_t region) {
  if (region > 0) out_ += ", ";
  out_ += "{\n";
  ++depth_;
  const Block* block = op->region(region).front();
  stack_.push_back({op, region, block, block == nullptr ? nullptr : block->front()});
  if (block != nullptr) OpenBlock(block, /*first=*/true);
}

void ProgramPrinter::OpenBlock(const Block* block, bool first) {
  if (first && block->num_arguments() == 0 && !block->empty()) return;
  Indent();
  out_ += "^(";
  for (size_t i = 0; i < block->num_arguments(); ++i) {
    if (i > 0) out_ += ", ";
    Define(block->argument(i));
    out_ += ": ";
    PrintCached(block->argument(i).type());
  }
  out_ += "):\n";
}

void ProgramPrinter::CloseRegion() {
  const Frame top = stack_.back();
  stack_.pop_back();
  --depth_;
  if (top.owner == nullptr) return;
  Indent();
  out_ += '}';
  if (top.region + 1 < top.owner->num_regions()) {
    OpenRegion(top.owner, top.region + 1);
  } else {
    out_ += ')';
    PrintTail(top.owner);
  }
}

void ProgramPrinter::Define(Value v) {
  numbers_.Set(v, next_number_);
  PrintNumber("%", next_number_++);
}

void ProgramPrinter::PrintUse(Value v) {
  if (!v) {
    out_ += "none";
    return;
  }
  if (const uint32_t number = numbers_.Find(v); number != 0) {
    PrintNumber("%", number - 1);
    return;
  }
  if (outside_.Find(v) == 0) outside_.Set(v, next_outside_++);
  PrintNumber("%in", outside_.Find(v) - 1);
}

void ProgramPrinter::PrintNumber(std::string_view prefix, uint32_t number) {
  char digits[10];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out_ += prefix;
  out_.append(digits, end);
}

void ProgramPrinter::Flush() {
  if (sink_ == nullptr) return;
  (*sink_)(out_);
  out_.clear();
}

bool IsModule(const Operation* op) {
  return op->name() == kModuleOp && op->block() == nullptr && op->num_regions() == 1 &&
         op->region(0).front() != nullptr && op->region(0).front() == op->region(0).back();
}

}  // namespace

std::string Print(const Operation* op, const PrintOptions& options) {
  ProgramPrinter printer(*op->context(), options, nullptr);
  IsModule(op) ? printer.PrintModule(op) : printer.PrintOne(op, /*regions=*/true);
  return printer.Take();
}

std::string Print(const Program& program, const PrintOptions& options) {
  return Print(program.module(), options);
}

void PrintTo(const Program& program, const PrintOptions& options, const Sink& sink) {
  ProgramPrinter(program.context(), options, &sink).PrintModule(program.module());
}

std::string Operation::ToString() const {
  const PrintOptions options{.locations = false};
  ProgramPrinter printer(*context(), options, nullptr);
  printer.PrintOne(this, /*regions=*/false);
  return printer.Take();
}

}  // namespace lathe
