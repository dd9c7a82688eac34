#include "lathe/dialect/nn/string.h"

#include <algorithm>
#include <unordered_set>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/nn/letters.h"
#include "src/dialect/nn/regex.h"
#include "src/dialect/prepared.h"

namespace lathe::nn {

using eval::FailShape;

// ---- string_concat ----

void StringConcatOp::InferShape(InferShapeContext& c) {
  c.SetShape(kZ, Broadcast(c.shape(kX), c.shape(kY)));
}

void StringConcatOp::Eval(EvalContext& c) {
  const Shape shapes[] = {c.input(kX).shape(), c.input(kY).shape()};
  const auto x = c.input(kX).data<std::string>();
  const auto y = c.input(kY).data<std::string>();
  Tensor out(ElementType::kString, eval::BroadcastShapes(shapes));
  auto z = out.mutable_data<std::string>();
  const eval::Broadcaster rows(shapes, out.shape());
  rows.ForEachRow([&](int64_t to, std::span<const int64_t> from) {
    for (int64_t i = 0; i < rows.row_length(); ++i) {
      z[static_cast<size_t>(to + i)] = x[static_cast<size_t>(from[0] + i * rows.stride(0))] +
                                       y[static_cast<size_t>(from[1] + i * rows.stride(1))];
    }
  });
  c.SetOutput(kZ, std::move(out));
}

// ---- string_split ----

namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";

// At most `cuts` cuts at `delimiter`; what is left is the last piece.
std::vector<std::string> SplitAt(std::string_view text, std::string_view delimiter, size_t cuts) {
  std::vector<std::string> pieces;
  size_t at = 0;
  while (pieces.size() < cuts && (at = text.find(delimiter)) != std::string_view::npos) {
    pieces.emplace_back(text.substr(0, at));
    text.remove_prefix(at + delimiter.size());
  }
  pieces.emplace_back(text);
  return pieces;
}

void SkipBlanks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
}

std::vector<std::string> SplitAtBlanks(std::string_view text, size_t cuts) {
  std::vector<std::string> pieces;
  SkipBlanks(text);
  while (!text.empty()) {
    const size_t end =
        pieces.size() < cuts ? std::min(text.find_first_of(kBlanks), text.size()) : text.size();
    pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    SkipBlanks(text);
  }
  return pieces;
}

}  // namespace

void StringSplitOp::InferShape(InferShapeContext& c) {
  SymShape pieces = c.shape(kX);
  c.SetShape(kZ, pieces);
  if (pieces.ranked) pieces.dims.emplace_back();
  c.SetShape(kY, pieces);
}

void StringSplitOp::Eval(EvalContext& c) {
  const StringSplitOp op(c.op());
  const Tensor& x = c.input(kX);
  const std::string_view delimiter = op.delimiter().value_or("");
  const auto cuts = static_cast<size_t>(op.maxsplit().value_or(INT64_MAX));
  std::vector<std::vector<std::string>> pieces;
  size_t most = 0;
  for (const std::string& text : x.data<std::string>()) {
    pieces.push_back(delimiter.empty() ? SplitAtBlanks(text, cuts)
                                       : SplitAt(text, delimiter, cuts));
    most = std::max(most, pieces.back().size());
  }
  Tensor counts(ElementType::kI64, x.shape());
  Shape shape = x.shape();
  shape.push_back(static_cast<int64_t>(most));
  Tensor out(ElementType::kString, std::move(shape));
  for (size_t i = 0; i < pieces.size(); ++i) {
    counts.mutable_data<int64_t>()[i] = static_cast<int64_t>(pieces[i].size());
    const auto row = out.mutable_data<std::string>().subspan(i * most, most);
    std::move(pieces[i].begin(), pieces[i].end(), row.begin());
  }
  c.SetOutput(kY, std::move(out));
  c.SetOutput(kZ, std::move(counts));
}

// ---- regex_full_match ----

void RegexFullMatchOp::InferShape(InferShapeContext& c) { c.SetShape(kY, c.shape(kX)); }

void RegexFullMatchOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const auto regex =
      Prepared(c, [&] { return Regex(RegexFullMatchOp(c.op()).pattern().value_or("")); });
  Tensor out(ElementType::kBool, x.shape());
  bool* next = out.mutable_data<bool>().data();
  for (const std::string& text : x.data<std::string>()) *next++ = regex->FullMatch(text);
  c.SetOutput(kY, std::move(out));
}

// ---- tokenize ----

void TokenizeOp::InferShape(InferShapeContext& c) {
  SymShape tokens = c.shape(kX);
  if (tokens.ranked && (tokens.rank() < 1 || tokens.rank() > 2)) {
    FailShape("shape/tokenize", StrCat("the input must be [c] or [n, c], not ", tokens.ToString()));
  }
  if (tokens.ranked) tokens.dims.emplace_back();
  c.SetShape(kY, tokens);
}

namespace {

// Those of UTF-8; bytes that are no UTF-8 are none.
std::vector<Regex::Match> CodePointsOf(std::string_view text) {
  std::vector<Regex::Match> found;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length > 0) found.push_back({text.substr(0, length), 1});
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return found;
}

}  // namespace

void TokenizeOp::Eval(EvalContext& c) {
  const TokenizeOp op(c.op());
  const Tensor& x = c.input(kX);
  const bool is_dot = op.tokenexp() == ".";  // takes line breaks too, as onnxruntime has it
  const auto regex = Prepared(c, [&] { return Regex(op.tokenexp()); });
  const auto least = static_cast<size_t>(op.mincharnum());
  std::vector<std::vector<Regex::Match>> tokens;
  size_t most = 0;
  for (const std::string& text : x.data<std::string>()) {
    tokens.push_back(is_dot ? CodePointsOf(text) : regex->FindAll(text));
    std::erase_if(tokens.back(), [&](const Regex::Match& m) { return m.length < least; });
    most = std::max(most, tokens.back().size());
  }
  const bool mark = op.mark() && most > 0;
  if (mark) most += 2;
  Shape shape = x.shape();
  shape.push_back(static_cast<int64_t>(most));
  Tensor out(ElementType::kString, std::move(shape));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = out.mutable_data<std::string>().subspan(i * most, most);
    auto next = row.begin();
    if (mark) *next++ = "\x02";
    for (const Regex::Match& m : tokens[i]) *next++ = m.text;
    if (mark) *next++ = "\x03";
    std::fill(next, row.end(), std::string(op.pad_value()));
  }
  c.SetOutput(kY, std::move(out));
}

// ---- string_normalizer ----

namespace {

void CheckWords(const SymShape& in) {
  if (!in.ranked) return;
  const auto message = [&] {
    return StrCat("the input must be [n] or [1, n], not ", in.ToString());
  };
  if (in.rank() < 1 || in.rank() > 2) FailShape("shape/string-normalizer", message());
  if (in.rank() == 2) {
    Assume(SizeCondition::Equal(in.dims[0], 1), "shape/string-normalizer", message);
  }
}

class StopWords {
 public:
  explicit StopWords(StringNormalizerOp op) : exact_(op.is_case_sensitive()) {
    for (const std::string& word : op.stopwords().value_or(std::vector<std::string>())) {
      keys_.insert(Key(word));
    }
  }
  std::vector<std::string> Without(std::span<const std::string> words) const {
    std::vector<std::string> kept;
    for (const std::string& word : words) {
      if (keys_.empty() || !keys_.contains(Key(word))) kept.push_back(word);
    }
    return kept;
  }

 private:
  std::string Key(const std::string& word) const { return exact_ ? word : InCase(word, false); }

  bool exact_;
  std::unordered_set<std::string> keys_;  // looked up, never iterated
};

}  // namespace

void StringNormalizerOp::InferShape(InferShapeContext& c) {
  const SymShape in = c.shape(kX);
  CheckWords(in);
  if (!in.ranked) return c.SetShape(kY, {});
  c.SetShape(kY, in.rank() == 1 ? SymShape{Dim()} : SymShape{1, Dim()});
}

void StringNormalizerOp::Eval(EvalContext& c) {
  const StringNormalizerOp op(c.op());
  const Tensor& x = c.input(kX);
  CheckWords(SymShape::FromConstants(x.shape()));
  const auto stop_words = Prepared(c, [&] { return StopWords(op); });
  auto words = stop_words->Without(x.data<std::string>());
  if (words.empty()) words.emplace_back();
  for (std::string& word : words) {
    if (op.case_change_action() != "NONE") word = InCase(word, op.case_change_action() == "UPPER");
  }
  Shape shape = x.shape();
  shape.back() = static_cast<int64_t>(words.size());
  c.SetOutput(kY, Tensor::Of<std::string>(std::move(shape), words));
}

}  // namespace lathe::nn
