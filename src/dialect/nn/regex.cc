#include "src/dialect/nn/regex.h"

#include <algorithm>

#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/regex_parse.h"

namespace lathe::nn {

namespace {

using Instruction = Regex::Instruction;
using Kind = Regex::Instruction::Kind;

constexpr size_t kMaxProgram = 100'000;
constexpr size_t kMaxSteps = 10 * kMaxProgram;

[[noreturn]] void FailSize() {
  throw Error(ErrorCode::kLimit, "limit/regex", "the pattern is too large")
      .Hint("use smaller repetition counts");
}

// Emits code back to front: each part is told where to go on. The tree's depth is limited by the
// parser, so recursion is safe.
class Compiler {
 public:
  Compiler(std::vector<Instruction>& program, std::vector<Regex::Ranges>& sets)
      : program_(program), sets_(sets) {}

  uint32_t Emit(const Instruction& instruction) {
    if (program_.size() >= kMaxProgram) FailSize();
    program_.push_back(instruction);
    return static_cast<uint32_t>(program_.size() - 1);
  }

  uint32_t Compile(const RegexNode& node, uint32_t next) {
    if (++steps_ > kMaxSteps) FailSize();
    switch (node.kind) {
      case RegexNode::Kind::kEmpty:
        return next;
      case RegexNode::Kind::kSet:
        sets_.push_back(node.ranges);
        return Emit({Kind::kSet, next, static_cast<uint32_t>(sets_.size() - 1)});
      case RegexNode::Kind::kAssert:
        return Emit({Kind::kAssert, next, node.assertion});
      case RegexNode::Kind::kSequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
          next = Compile(*part, next);
        }
        return next;
      case RegexNode::Kind::kChoice:
        return Choice(node, next);
      case RegexNode::Kind::kRepeat:
        return Repeat(node, next);
    }
    return next;
  }

 private:
  uint32_t Choice(const RegexNode& node, uint32_t next) {
    uint32_t entry = Compile(node.parts.back(), next);
    for (size_t i = node.parts.size() - 1; i-- > 0;) {
      entry = Emit({Kind::kSplit, Compile(node.parts[i], next), entry});
    }
    return entry;
  }

  uint32_t Repeat(const RegexNode& node, uint32_t next) {
    const RegexNode& part = node.parts[0];
    if (node.max < 0) {
      const uint32_t loop = Emit({Kind::kSplit, 0, next});
      program_[loop].next = Compile(part, loop);
      next = loop;
    }
    const uint32_t end = next;
    for (int i = node.min; i < node.max; ++i) {
      next = Emit({Kind::kSplit, Compile(part, next), end});
    }
    for (int i = 0; i < node.min; ++i) next = Compile(part, next);
    return next;
  }

  std::vector<Instruction>& program_;
  std::vector<Regex::Ranges>& sets_;
  size_t steps_ = 0;
};

bool Contains(const Regex::Ranges& ranges, uint32_t c) {
  for (const auto& [first, last] : ranges) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

// What lies on both sides of a place in the text; 0 and "is an end" where nothing does.
struct Place {
  bool at_begin, at_end;
  uint32_t before, after;

  bool Holds(uint32_t assertion) const {
    const bool word = (!at_begin && IsWordCharacter(before)) != (!at_end && IsWordCharacter(after));
    switch (assertion) {
      case Regex::kTextBegin:
        return at_begin;
      case Regex::kTextEnd:
        return at_end;
      case Regex::kLineBegin:
        return at_begin || before == '\n';
      case Regex::kLineEnd:
        return at_end || after == '\n';
      case Regex::kWord:
        return word;
      default:
        return !word;
    }
  }
};

// The instructions at which the match may stand, each once.
class Threads {
 public:
  explicit Threads(const std::vector<Instruction>& program)
      : program_(&program), seen_(program.size()) {}

  // Adds `start` and everything reached from it without reading a character.
  void Add(uint32_t start, const Place& place) {
    std::vector<uint32_t> open{start};
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      if (seen_[at]) continue;
      seen_[at] = true;
      visited_.push_back(at);
      const Instruction& i = (*program_)[at];
      if (i.kind == Kind::kSplit) open.push_back(i.other);
      if (i.kind == Kind::kSplit || (i.kind == Kind::kAssert && place.Holds(i.other))) {
        open.push_back(i.next);
      }
    }
  }
  const std::vector<uint32_t>& visited() const { return visited_; }
  void Clear() {
    for (const uint32_t at : visited_) seen_[at] = false;
    visited_.clear();
  }

 private:
  const std::vector<Instruction>* program_;
  std::vector<bool> seen_;
  std::vector<uint32_t> visited_;
};

}  // namespace

Regex::Regex(std::string_view pattern) {
  Compiler compiler(program_, sets_);
  const uint32_t match = compiler.Emit({Kind::kMatch});
  start_ = compiler.Compile(ParseRegex(pattern), match);
}

// Where in the text the longest match that starts at `from` ends; nothing where none does.
std::optional<size_t> Regex::Longest(const std::vector<uint32_t>& points, size_t from) const {
  Threads now(program_);
  Threads next(program_);
  std::optional<size_t> end;
  const auto place = [&](size_t i) {
    return Place{i == 0, i == points.size(), i == 0 ? 0 : points[i - 1],
                 i == points.size() ? 0 : points[i]};
  };
  now.Add(start_, place(from));
  for (size_t i = from; !now.visited().empty(); ++i) {
    for (const uint32_t at : now.visited()) {
      const Instruction& instruction = program_[at];
      if (instruction.kind == Kind::kMatch) end = i;
      if (instruction.kind != Kind::kSet || i == points.size()) continue;
      if (Contains(sets_[instruction.other], points[i])) next.Add(instruction.next, place(i + 1));
    }
    now.Clear();
    std::swap(now, next);
  }
  return end;
}

bool Regex::FullMatch(std::string_view text) const {
  std::vector<uint32_t> points;
  while (!text.empty()) points.push_back(NextCodePoint(text));
  return Longest(points, 0) == points.size();
}

std::vector<Regex::Match> Regex::FindAll(std::string_view text) const {
  std::vector<uint32_t> points;
  std::vector<size_t> starts;  // in bytes
  for (std::string_view rest = text; !rest.empty();) {
    starts.push_back(text.size() - rest.size());
    points.push_back(NextCodePoint(rest));
  }
  starts.push_back(text.size());
  std::vector<Match> found;
  for (size_t i = 0; i < points.size();) {
    const size_t end = Longest(points, i).value_or(i);
    if (end > i) found.push_back({text.substr(starts[i], starts[end] - starts[i]), end - i});
    i = std::max(end, i + 1);
  }
  return found;
}

}  // namespace lathe::nn
