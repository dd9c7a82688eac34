#include "lathe/driver/program_difference.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

constexpr std::string_view kGetParameter = builtin::kGetParameter;

std::string NameOf(const Operation& op) {
  const auto name = op.attribute("name").dyn_cast<StrAttribute>();
  return name ? std::string(name.value()) : std::string();
}

using TextsByName = std::vector<std::pair<std::string, std::string>>;

const std::string* FindText(const TextsByName& texts, const std::string& name) {
  const auto found = std::ranges::find(texts, name, &TextsByName::value_type::first);
  return found == texts.end() ? nullptr : &found->second;
}

// What is named in both is compared, in the order of `a`.
void CompareNamed(const char* what, const TextsByName& a, const TextsByName& b,
                  std::vector<ProgramDifference>& all) {
  const auto shown = [](const std::string& name, const std::string& text) {
    return StrCat(Quote(name), ": ", text);
  };
  for (const auto& [name, text] : a) {
    const std::string* other = FindText(b, name);
    if (other != nullptr && *other == text) continue;
    all.push_back({what, shown(name, text), other == nullptr ? "" : shown(name, *other)});
  }
  for (const auto& [name, text] : b) {
    if (FindText(a, name) == nullptr) all.push_back({what, "", shown(name, text)});
  }
}

TextsByName Inputs(const Program& program) {
  TextsByName texts;
  for (const Operation* op : program.feeds()) {
    texts.emplace_back(NameOf(*op), op->result(0).type().ToString());
  }
  return texts;
}

TextsByName Outputs(const Program& program) {
  TextsByName texts;
  for (const Operation* op : program.fetches()) {
    texts.emplace_back(NameOf(*op), op->operand(0).type().ToString());
  }
  return texts;
}

void CompareParameters(const Program& a, const Program& b, std::vector<ProgramDifference>& all) {
  const auto types = [](const Program& program) {
    TextsByName texts;
    for (const auto& [name, variable] : program.parameters()) {
      texts.emplace_back(std::string(name.value()), variable.data.TypeString());
    }
    return texts;
  };
  const size_t before = all.size();
  CompareNamed("parameter", types(a), types(b), all);
  if (all.size() != before) return;
  for (const auto& [name, variable] : a.parameters()) {
    const Tensor& other = b.parameters().Find(name.value())->data;
    if (variable.data == other) continue;
    const std::string which = AllClose(variable.data, other, 0, 0).description;
    all.push_back({"parameter", StrCat(Quote(name.value()), " has other numbers: ", which), {}});
  }
}

// The operations of one program, in order, with what they are known by.
class Listing {
 public:
  explicit Listing(const Program& program) : names_(program) {
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      if (op->name() == nn::kFeed) continue;
      places_.emplace(op, ops_.size());
      ops_.push_back(op);
      keys_.push_back(KeyOf(*op));
    }
  }

  size_t size() const { return ops_.size(); }
  const Operation& op(size_t i) const { return *ops_[i]; }
  const std::string& key(size_t i) const { return keys_[i]; }

  // "nn.relu(x) {attributes} : type"
  std::string Line(size_t i) const {
    const Operation& op = *ops_[i];
    std::string operands, types;
    for (size_t k = 0; k < op.num_operands(); ++k) {
      operands += StrCat(k == 0 ? "" : ", ", names_.Of(op.operand(k)));
    }
    for (size_t k = 0; k < op.num_results(); ++k) {
      types += StrCat(k == 0 ? "" : ", ", op.result(k).type().ToString());
    }
    return StrCat(op.name(), "(", operands, ")", AttributesOf(op), " : ", types);
  }

  std::string Name(Value value) const { return names_.Of(value); }

  // The place of the operation that makes a value; none for inputs and arguments of blocks.
  std::optional<size_t> PlaceOf(Value value) const {
    const Operation* op = value ? value.defining_op() : nullptr;
    const auto found = places_.find(op);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  static std::string AttributesOf(const Operation& op) {
    constexpr size_t kLongest = 120;
    std::string text;
    for (const auto& [name, value] : op.attributes().entries()) {
      std::string shown = value.ToString();
      if (shown.size() > kLongest) shown = StrCat(shown.substr(0, kLongest), "...");
      text += StrCat(text.empty() ? " {" : ", ", name.value(), " = ", shown);
    }
    return text.empty() ? text : text + "}";
  }

  // The whole attributes: dictionaries are short, tensors in them are constants.
  static std::string KeyOf(const Operation& op) {
    return StrCat(op.name(), " ", op.num_operands(), " ", op.num_results(), " ",
                  op.attributes().ToString());
  }

  ValueNames names_;
  std::vector<const Operation*> ops_;
  std::vector<std::string> keys_;
  std::unordered_map<const Operation*, size_t> places_;
};

using Pair = std::pair<size_t, size_t>;

// The longest run of pairs in which both rise (Fredman 1975); the first ones rise already.
std::vector<Pair> LongestRising(const std::vector<Pair>& pairs) {
  std::vector<size_t> ends;  // by length: the pair that ends the lowest run
  std::vector<size_t> before(pairs.size(), SIZE_MAX);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto at = std::ranges::lower_bound(ends, pairs[i].second, {},
                                             [&](size_t end) { return pairs[end].second; });
    if (at != ends.begin()) before[i] = *(at - 1);
    if (at == ends.end()) {
      ends.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<Pair> run;
  for (size_t i = ends.empty() ? SIZE_MAX : ends.back(); i != SIZE_MAX; i = before[i]) {
    run.push_back(pairs[i]);
  }
  std::ranges::reverse(run);
  return run;
}

// Equal keys at both ends, and between them the n-th of a key with the n-th of it.
std::vector<Pair> Matches(const Listing& a, const Listing& b) {
  size_t head = 0, tail = 0;
  const size_t shorter = std::min(a.size(), b.size());
  while (head < shorter && a.key(head) == b.key(head)) ++head;
  while (tail < shorter - head && a.key(a.size() - 1 - tail) == b.key(b.size() - 1 - tail)) ++tail;
  std::map<std::string_view, std::vector<size_t>> places;
  for (size_t j = b.size() - tail; j-- > head;) places[b.key(j)].push_back(j);
  std::vector<Pair> pairs;
  for (size_t i = head; i < a.size() - tail; ++i) {
    const auto found = places.find(a.key(i));
    if (found == places.end() || found->second.empty()) continue;
    pairs.emplace_back(i, found->second.back());
    found->second.pop_back();
  }
  std::vector<Pair> all;
  for (size_t i = 0; i < head; ++i) all.emplace_back(i, i);
  std::ranges::copy(LongestRising(pairs), std::back_inserter(all));
  for (size_t k = tail; k-- > 0;) all.emplace_back(a.size() - 1 - k, b.size() - 1 - k);
  return all;
}

class Comparison {
 public:
  Comparison(const Program& a, const Program& b, std::vector<ProgramDifference>& all)
      : a_(a), b_(b), all_(all), match_(a_.size(), SIZE_MAX) {}

  void Run() {
    const std::vector<Pair> pairs = Matches(a_, b_);
    for (const auto& [i, j] : pairs) match_[i] = j;
    size_t next_a = 0, next_b = 0;
    for (const auto& [i, j] : pairs) {
      Unmatched(next_a, i, next_b, j);
      CompareMatched(i, j);
      next_a = i + 1;
      next_b = j + 1;
    }
    Unmatched(next_a, a_.size(), next_b, b_.size());
  }

 private:
  void Unmatched(size_t begin_a, size_t end_a, size_t begin_b, size_t end_b) {
    for (size_t i = begin_a; i < end_a; ++i) {
      if (!IsListed(a_.op(i))) all_.push_back({"operation", a_.Line(i), ""});
    }
    for (size_t j = begin_b; j < end_b; ++j) {
      if (!IsListed(b_.op(j))) all_.push_back({"operation", "", b_.Line(j)});
    }
  }

  // Among the outputs or the parameters already.
  static bool IsListed(const Operation& op) {
    return op.name() == nn::kFetch || op.name() == kGetParameter;
  }

  // Values of matched operations, of inputs of one name, or of both arguments of a block.
  bool IsSame(Value a, Value b) const {
    const auto from_a = a_.PlaceOf(a), from_b = b_.PlaceOf(b);
    if (from_a && from_b) return match_[*from_a] == *from_b && a.index() == b.index();
    if (!a || !b || from_a || from_b) return !a == !b && !from_a && !from_b;
    if (a.is_block_argument() || b.is_block_argument()) {
      return a.is_block_argument() && b.is_block_argument() && a.index() == b.index();
    }
    return a_.Name(a) == b_.Name(b);
  }

  // What reads a changed operation is not told as a change of its own.
  bool ReadsUnmatched(Value a, Value b) const {
    const auto from_a = a_.PlaceOf(a), from_b = b_.PlaceOf(b);
    const bool b_unmatched = from_b && std::ranges::find(match_, *from_b) == match_.end();
    return (from_a && match_[*from_a] == SIZE_MAX) && b_unmatched;
  }

  void CompareMatched(size_t i, size_t j) {
    const Operation &a = a_.op(i), &b = b_.op(j);
    for (size_t k = 0; k < a.num_operands(); ++k) {
      if (IsSame(a.operand(k), b.operand(k)) || ReadsUnmatched(a.operand(k), b.operand(k))) {
        continue;
      }
      all_.push_back({"operand", a_.Line(i), b_.Line(j)});
      return;
    }
    for (size_t k = 0; k < a.num_results(); ++k) {
      if (a.result(k).type().ToString() == b.result(k).type().ToString()) continue;
      all_.push_back({"type", a_.Line(i), b_.Line(j)});
      return;
    }
  }

  Listing a_, b_;
  std::vector<ProgramDifference>& all_;
  std::vector<size_t> match_;  // of operations of `a`
};

}  // namespace

std::vector<ProgramDifference> ComparePrograms(const Program& a, const Program& b) {
  std::vector<ProgramDifference> all;
  CompareNamed("input", Inputs(a), Inputs(b), all);
  CompareNamed("output", Outputs(a), Outputs(b), all);
  CompareParameters(a, b, all);
  Comparison(a, b, all).Run();
  return all;
}

}  // namespace lathe
